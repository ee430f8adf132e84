"""The link of a broker to the controller: what happens when it breaks, and the controller may be alive.

This broker first finds out whether the majority of the brokers has lost the controller. It requests that of each over a
connection of its own, in a tagged field of an AlterPartition without partitions (Apache Kafka's brokers skip it, and
count as brokers that do not know). If so, this broker stands for election. If not, it is this broker that is cut off:
the controller stays, and until the link is whole again this broker reads from the metadata store what the controller
would have sent it. The controller notices the cut by its own end of the link.
"""

import asyncio
import logging
from typing import Final

from oncelog.broker.peers.cluster_channel import ClusterChannel
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.clients.connection import Address
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER, MetadataCache
from oncelog.coordinator.controller.cluster_loading import read_brokers
from oncelog.coordinator.controller.cluster_reading import read_orders
from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_loss import ControllerContact, may_take_over
from oncelog.coordinator.metadata_store.store import MetadataStore, StoreUnavailable
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_FIRST_VERSION: Final = 2
"""Of AlterPartition with our field."""
_CONTACT_SECONDS: Final = 0.4
_LAST_PROBE_SECONDS: Final = 0.1
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0


class ControllerLink:
    """The link of one broker."""

    def __init__(
        self,
        controller: Controller,
        *,
        store: MetadataStore,
        channel: ClusterChannel,
        local: LocalChannel,
        metadata: MetadataCache,
        configs: ConfigRepository,
        listener_name: str,
    ) -> None:
        self._controller = controller
        self._broker_id = controller.broker_id
        self._store = store
        self._channel = channel
        self._local = local
        self._metadata = metadata
        self._configs = configs
        self._listener_name = listener_name

    @property
    def controller_id(self) -> int:
        """The controller: the store knows it before the controller itself can say so."""
        known = self._controller.controller_id
        return self._metadata.image.controller_id if known == NO_CONTROLLER else known

    def contact(self, controller_id: int) -> ControllerContact:
        """Return whether this broker reaches the controller, for another broker."""
        if controller_id != self.controller_id:
            return ControllerContact.UNKNOWN
        if controller_id == self._broker_id or self._channel.is_connected(controller_id):
            return ControllerContact.REACHED
        return ControllerContact.LOST

    async def broken(self, controller_id: int, *, refused: bool) -> None:
        """Do without the controller until it is reached again, or another one is elected, perhaps this broker.

        ``refused``: whether it refuses connections, and is not merely silent.
        """
        pause = _FIRST_PAUSE_SECONDS
        while self.controller_id == controller_id != self._broker_id and not self._channel.is_connected(controller_id):
            try:
                if await self._is_lost_to_the_majority(controller_id, refused=refused):
                    self._controller.report_unreachable(controller_id)
                    return
                if pause == 2 * _FIRST_PAUSE_SECONDS:  # One that has just ended seems to be reached for a moment.
                    logger.warning(
                        "Controller %d cannot be reached from here, but stays: others reach it", controller_id
                    )
                await self._read_store()
            except StoreUnavailable as error:
                logger.info("Without controller %d and the metadata store: %s", controller_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _is_lost_to_the_majority(self, controller_id: int, *, refused: bool) -> bool:
        brokers = await self._registered_brokers()
        others = [broker for id_, broker in brokers.items() if id_ not in (self._broker_id, controller_id)]
        contacts = await asyncio.gather(*(self._request_contact(broker, controller_id) for broker in others))
        if not may_take_over(contacts, controller_refuses=refused):
            return False
        # A broker that was cut off, and is no more, finds the majority and the controller at the same time.
        return refused or not await self._channel.reaches(controller_id, _LAST_PROBE_SECONDS)

    async def _registered_brokers(self) -> dict[int, LiveBroker]:
        session = self._store.session
        if session is None:
            raise StoreUnavailable("there is no session")
        return await read_brokers(session, ClusterState(), _ignore)

    async def _request_contact(self, broker: LiveBroker, controller_id: int) -> ControllerContact:
        endpoints = (known for known in broker.registration.endpoints if known.listener == self._listener_name)
        endpoint = next(endpoints, None)
        if endpoint is None:
            return ControllerContact.UNKNOWN
        request = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._controller.broker_epoch, lost_controller_id=controller_id
        )
        address = Address(endpoint.host, endpoint.port)
        response = await self._channel.request_once(
            address, request, AlterPartitionResponse, at_least=_FIRST_VERSION, seconds=_CONTACT_SECONDS
        )
        if response is None:
            return ControllerContact.UNKNOWN
        return contact_of(response.controller_contact)

    async def _read_store(self) -> None:
        session, known = self._store.session, self._metadata.image
        if session is None:
            return
        for request in await read_orders(session, self._broker_id, self._listener_name):
            if isinstance(request, LeaderAndIsrRequest):
                await self._read_configs(request)
            if self._metadata.image is not known:
                return  # The controller has sent newer metadata meanwhile.
            await self._carry_out(request)
            if isinstance(request, UpdateMetadataRequest):
                known = self._metadata.image
            await asyncio.sleep(0)

    async def _carry_out(self, request: Message) -> None:
        """Carry out a request; what cannot be done is retried with the next reading."""
        done = asyncio.Event()
        self._local.send(self._broker_id, request, lambda response: done.set())
        await done.wait()

    async def _read_configs(self, request: LeaderAndIsrRequest) -> None:
        """Read what new logs will be run by: a log is created with its topic's configuration."""
        topics = self._local.topics_without_log(request)
        if topics:
            await self._configs.read_topics(sorted(topics))


def contact_of(number: int) -> ControllerContact:
    """Return what a response says; UNKNOWN for a number of a later version."""
    return ControllerContact(number) if number in ControllerContact._value2member_map_ else ControllerContact.UNKNOWN


def _ignore() -> None:
    """Ignore that brokers come or go."""
