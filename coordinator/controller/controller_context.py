"""``ControllerContext``: what a controller has for one controller epoch.

These are the right to write to the metadata store, the state of the cluster that decisions are made on, and the channel
to the brokers. A context begins when an election is won. It ends with the session that won it, or when a newer
controller is noticed.

Every write is a multi that first checks the version of ``/controller_epoch``, so a controller that was replaced without
noticing changes nothing (``ControllerMoved``). A context that has ended writes, reads and sends nothing; its methods
raise ``ControllerMoved``, also after an await during which it ended.
"""

import asyncio
from collections.abc import Sequence
from itertools import count

from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.control_channel import ControlChannel
from oncelog.coordinator.controller.control_requests import ControlRequests
from oncelog.coordinator.controller.controller_election import Elected
from oncelog.coordinator.controller.recovery_waits import RecoveryWaits
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Check, Done, MultiFailed, MultiResult, Operation, Session


class ControllerMoved(Exception):
    """The broker is not the controller, or not any more."""


class ControllerContext:
    """The rights, the state and the channel of one controller epoch."""

    def __init__(
        self,
        *,
        session: Session,
        elected: Elected,
        state: ClusterState,
        control: ControlChannel,
        controller_id: int,
        listener_name: str,
        waits: RecoveryWaits,
    ) -> None:
        self._session = session
        self._epoch_version = elected.epoch_version
        self._listener_name = listener_name
        self.controller_id = controller_id
        self.epoch = elected.epoch
        self.state = state
        self.waits = waits
        self._control = control
        self._sequences = count()
        self.ended = False

    def end(self) -> None:
        """Give up the epoch: nothing is written or sent from now on."""
        self.ended = True
        self.waits.end()
        self._control.close()

    @property
    def is_active(self) -> bool:
        """Whether the epoch lasts, as far as this broker knows without a request to the store."""
        return not self.ended and self._session.is_live()

    @property
    def session(self) -> Session:
        """The session to read with. Raises ControllerMoved if the epoch has ended."""
        self._require_active()
        return self._session

    async def commit(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none. Raises ControllerMoved if another controller was elected."""
        return (await self.commit_many([operations]))[0]

    async def commit_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Do several commits in one call of the store, each atomic in itself."""
        self._require_active()
        check = Check(path=paths.CONTROLLER_EPOCH, version=self._epoch_version)
        results = await self._session.multi_many([(check, *batch) for batch in batches])
        self._require_active()
        return [self._without_check(result) for result in results]

    def _without_check(self, result: MultiResult) -> list[Done] | MultiFailed:
        if not isinstance(result, MultiFailed):
            return result[1:]
        if result.index == 0:
            self.end()
            raise ControllerMoved(f"controller epoch {self.epoch} is over")
        return MultiFailed(index=result.index - 1, error=result.error)

    def new_requests(self) -> ControlRequests:
        """Return an empty batch of control requests, to be filled and sent."""
        return ControlRequests(self.state, self.controller_id, self.epoch, self._listener_name)

    def send(self, requests: ControlRequests) -> None:
        """Send a batch to its brokers. Raises ControllerMoved if the epoch has ended."""
        for broker_id, request in requests.build():
            self._require_active()
            request.sequence = next(self._sequences)
            self._control.send(broker_id, request)

    async def await_responses(self, seconds: float) -> bool:
        """Wait until every reachable broker has responded to all that it was sent; return whether it did in time."""
        done, _ = await asyncio.wait([self._control.all_responded()], timeout=seconds)
        return bool(done)

    def mark_unreachable(self, broker_id: int) -> None:
        """Replace a broker as leader where possible, and do not wait for its responses."""
        self.state.unreachable.add(broker_id)
        self._control.unreachable_changed()

    def forget(self, broker_id: int) -> None:
        """Drop the requests to a broker that has stopped or registered anew."""
        self._control.forget(broker_id)

    def _require_active(self) -> None:
        if not self.is_active:
            self.end()
            raise ControllerMoved(f"controller epoch {self.epoch} is over")
