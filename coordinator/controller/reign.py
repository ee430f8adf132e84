"""One controller's time in office: the right to write, the knowledge it acts on, and the way to the brokers.

A reign begins when an election is won and ends with the session that won it, or when a newer controller is noticed.
Every write is a multi that first checks the version of ``/controller_epoch``, so a controller that was deposed without
noticing changes nothing (``ControllerMoved``). An ended reign writes nothing, sends nothing and reads nothing more;
whoever still holds it gets ``ControllerMoved`` after whatever it awaits.
"""

import asyncio
from collections.abc import Sequence
from itertools import count

from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.control_channel import ControlChannel, OnCaughtUp, OnControlResponse
from oncelog.coordinator.controller.control_requests import ControlRequests
from oncelog.coordinator.controller.controller_election import Victory
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Check, Done, MultiFailed, MultiResult, Operation, Session
from oncelog.coordinator.ports import BrokerChannel


class ControllerMoved(Exception):
    """This controller is not, or no longer, the controller: somebody else is, or will be."""


class Reign:
    """What a controller may do while it is the controller."""

    def __init__(
        self,
        *,
        session: Session,
        victory: Victory,
        controller_id: int,
        channel: BrokerChannel,
        listener_name: str,
        on_response: OnControlResponse,
        on_caught_up: OnCaughtUp,
    ) -> None:
        self._session = session
        self._epoch_version = victory.epoch_version
        self._listener_name = listener_name
        self.controller_id = controller_id
        self.epoch = victory.epoch
        self.state = ClusterState()
        self._control = ControlChannel(channel, on_response, on_caught_up, self.state.suspects)
        self._sequences = count()
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self._control.close()

    @property
    def is_active(self) -> bool:
        """Whether the reign goes on, as far as anybody can tell without asking the store."""
        return not self.ended and self._session.is_live()

    @property
    def session(self) -> Session:
        """The session to read with."""
        self._must_go_on()
        return self._session

    async def commit(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all of the operations or none, if this still is the controller."""
        return (await self.commit_many([operations]))[0]

    async def commit_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Several commits in one call, each atomic in itself."""
        self._must_go_on()
        check = Check(path=paths.CONTROLLER_EPOCH, version=self._epoch_version)
        results = await self._session.multi_many([(check, *batch) for batch in batches])
        self._must_go_on()
        return [self._without_check(result) for result in results]

    def _without_check(self, result: MultiResult) -> list[Done] | MultiFailed:
        if not isinstance(result, MultiFailed):
            return result[1:]
        if result.index == 0:
            self.end()
            raise ControllerMoved(f"controller epoch {self.epoch} is over")
        return MultiFailed(index=result.index - 1, error=result.error)

    def requests(self) -> ControlRequests:
        """A new batch of control requests, to be filled and sent."""
        return ControlRequests(self.state, self.controller_id, self.epoch, self._listener_name)

    def send(self, requests: ControlRequests) -> None:
        """Send a batch to its brokers, as long as the reign lasts."""
        for broker_id, request in requests.build():
            self._must_go_on()
            request.sequence = next(self._sequences)
            self._control.send(broker_id, request)

    async def tell_within(self, seconds: float) -> bool:
        """Wait until every broker that answers has answered all that it was sent. Returns whether that was in time."""
        done, _ = await asyncio.wait([self._control.all_told()], timeout=seconds)
        return bool(done)

    def suspect(self, broker_id: int) -> None:
        """Pass a broker over, and wait for no answer of it."""
        self.state.suspects.add(broker_id)
        self._control.suspects_changed()

    def forget(self, broker_id: int) -> None:
        """A broker is gone: what it was still to be told is of no use to it."""
        self._control.forget(broker_id)

    def _must_go_on(self) -> None:
        if not self.is_active:
            self.end()
            raise ControllerMoved(f"controller epoch {self.epoch} is over")
