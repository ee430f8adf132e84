"""What a broker has only as a member of a cluster: the way to the others, and how it joins them.

A connection to the controller is kept from the moment that it is known, so that its death is noticed at once; the
controller, in turn, keeps one to every broker. What follows from a broken one is the controller's business, except for
one decision: is the other broker gone, or is this one cut off?

* A broker that has lost the controller requests the state of the others' links (``controller_link``).
* A controller that has lost a broker passes it over, which is safe if it was wrong. If nothing listens any more where
  the broker did, it does so at once. If there is only silence, it does so only while it reaches the majority of the
  cluster; then those on the other side of a cut do not, and only one side acts. In a cluster of two, silence is left to
  the metadata store.

Loaded by ``oncelog.broker.start`` when ``zookeeper.connect`` is set; a broker that is alone has none of this.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata import live_broker
from oncelog.broker.peers.cluster_channel import ClusterChannel
from oncelog.broker.peers.cluster_replication import ClusterReplication
from oncelog.broker.peers.controller_client import ControllerClient
from oncelog.broker.peers.controller_link import ControllerLink
from oncelog.broker.peers.lanes import RequestTimeouts
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address
from oncelog.coordinator.controller.cluster_image import ClusterImage, MetadataCache, MetadataChange
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.controller.membership import await_free_id, check_endpoints
from oncelog.coordinator.metadata_store.store import MetadataStore, Session
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration
from oncelog.protocol.errors import error_of
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_EXPIRY_ALLOWANCE: Final = 1.25
"""ZooKeeper ends a session some ticks after its time-out."""
_FIRST_METADATA_SECONDS: Final = 10.0
_PROBE_SECONDS: Final = 0.4
_LAST_PROBE_SECONDS: Final = 0.1
_LEAVE_SECONDS: Final = 15.0
_ELECTION_SECONDS: Final = 1.0
"""For which a broker that stops waits for a controller to appear: as long as an election may take."""
_METADATA_AFTER_RESIGN_SECONDS: Final = 0.25
"""Seconds to keep serving Metadata after resigning leadership. A client whose connection is closed instead may wait
a second before it tries another broker, as librdkafka does when its only connection is to this one."""
_RETRY_SECONDS: Final = 0.05
_SHOWN: Final = 3


class ClusterMember:
    """One broker among others."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        *,
        local: LocalChannel,
        metadata: MetadataCache,
        configs: ConfigRepository,
        security: PeerSecurity,
        supervisor: Supervisor,
    ) -> None:
        """Make the member before the dynamic configuration is loaded. Raises ``ConfigError``."""
        self._config = config
        self._broker_id = broker_id
        self._local = local
        self._supervisor = supervisor
        self._session_seconds = config.zookeeper_session_timeout_ms / 1000
        self._metadata = metadata
        self._listener_name = security.listener_name
        self._security = security
        self._controller: Controller | None = None
        self._controller_client: ControllerClient | None = None
        self._last = asyncio.Event()
        """Set while no other broker is known to be alive."""
        self._watched: set[int] = set()
        self._in_doubt: set[int] = set()
        self._is_alone = False
        """Whether this broker did not reach the majority at the last check."""
        self.controller_link: ControllerLink | None = None
        """Once there is a controller to follow."""
        self._last_failure: str | None = None
        """Why the last controlled shutdown request failed; None if it succeeded."""
        self.metadata_received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once this broker has received the cluster's metadata."""
        metadata.add_listener(self._on_metadata_change)
        self._configs = configs
        self.channel = ClusterChannel(
            broker_id,
            local=local,
            address_of=self._address_of,
            spawn=supervisor.spawn,
            on_refused=partial(self._on_unreachable, refused=True),
            on_silence=partial(self._on_unreachable, refused=False),
            timeouts=RequestTimeouts(
                controller_ms=config.controller_socket_timeout_ms, coordinator_ms=config.request_timeout_ms
            ),
        )
        self.channel.security = security
        self.replication = ClusterReplication(
            config,
            broker_id,
            channel=self.channel,
            metadata=metadata,
            configs=configs,
            supervisor=supervisor,
            controller=lambda: self._controller,
        )

    async def await_free_id(self, session: Session) -> None:
        """Wait until the registration of an earlier incarnation of this broker is gone. Raises ``BrokerIdTaken``."""
        await await_free_id(session, self._broker_id, self._session_seconds * _EXPIRY_ALLOWANCE, self._is_alive)

    async def check_endpoints(self, session: Session, registration: BrokerRegistration) -> None:
        """Raise ``EndpointTaken`` if a live broker has an address that this one is about to register."""
        await check_endpoints(session, registration, self._is_alive)

    async def _is_alive(self, registration: BrokerRegistration) -> bool:
        return await live_broker.is_alive(registration, self._listener_name, self._security)

    def follow(self, controller_apis: ControllerApis, replicas: ReplicaManager, store: MetadataStore) -> None:
        """Work with this broker's controller from now on, and replicate with the others."""
        controller = self._controller = controller_apis.controller
        self._controller_client = ControllerClient(controller_apis, self.channel, self._config)
        self.controller_link = ControllerLink(
            controller,
            store=store,
            channel=self.channel,
            local=self._local,
            metadata=self._metadata,
            configs=self._configs,
            listener_name=self._listener_name,
        )
        controller.on_other_elected = self._watch_anew
        self._local.serve_controller(controller_apis)
        self.replication.start_checks(replicas)

    async def until_metadata_received(self) -> None:
        """Wait for the first metadata from a controller: before that, this broker cannot serve clients."""
        try:
            async with asyncio.timeout(_FIRST_METADATA_SECONDS):
                await asyncio.shield(self.metadata_received)
        except TimeoutError:
            logger.warning("No controller has sent the cluster's metadata to this broker yet; it starts without")

    async def leave(self) -> None:
        """Have others lead what this broker leads, as long as there are others. It is about to stop."""
        client = self._controller_client
        if not self._config.controlled_shutdown_enable or client is None:
            return
        self.replication.leave()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._request_shutdown(client)
        except TimeoutError:
            logger.warning("No controller completed the controlled shutdown of broker %d in time", self._broker_id)

    async def _request_shutdown(self, client: ControllerClient) -> None:
        """Request a controlled shutdown until nothing is left to lead, or no broker is left to lead or decide."""
        tries, alone_since, loop = 0, math.inf, asyncio.get_running_loop()
        while not self._last.is_set():
            response = await self._request_once(client)
            if response is None:
                alone_since = min(alone_since, loop.time())
                if loop.time() - alone_since >= _ELECTION_SECONDS:
                    break
                await self._rest(_RETRY_SECONDS)
                continue
            if not response.remaining_partitions:
                await self._rest(_METADATA_AFTER_RESIGN_SECONDS)
                return
            tries, alone_since = tries + 1, math.inf
            logger.warning("%s", _about_remaining(response))
            if tries >= self._config.controlled_shutdown_max_retries:
                break
            await self._rest(self._config.controlled_shutdown_retry_backoff_ms / 1000)
        else:
            return
        logger.warning("Broker %d stops while it still leads partitions", self._broker_id)

    async def _request_once(self, client: ControllerClient) -> ControlledShutdownResponse | None:
        """Return the controller's response; None if there is no controller, or another one in a moment."""
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=client.controller.broker_epoch)
        response = await client.send(request)
        if isinstance(response, ControlledShutdownResponse) and not response.error_code:
            return response
        reason = _failure_reason(response)
        if reason != self._last_failure:  # Logged once: the request is retried many times a second.
            logger.info("The controlled shutdown request failed: %s; retrying", reason)
        self._last_failure = reason
        return None

    async def _rest(self, seconds: float) -> None:
        """Wait until a retry makes sense, or no other broker is left."""
        try:
            async with asyncio.timeout(seconds):
                await self._last.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        self.replication.stop()
        self.channel.close()

    def _on_metadata_change(self, change: MetadataChange) -> None:
        if not self.metadata_received.done():
            self.metadata_received.set_result(None)
        self._watch(self._whom_to_watch(change.after))
        for broker_id in change.before.brokers.keys() - change.after.brokers.keys():
            self.channel.give_up(broker_id)
        if change.before.brokers != change.after.brokers:
            self.channel.check_addresses()
        if change.after.brokers.keys() - {self._broker_id}:
            self._last.clear()
        else:
            self._last.set()

    def _whom_to_watch(self, image: ClusterImage) -> set[int]:
        controller_id = image.controller_id if self.controller_link is None else self.controller_link.controller_id
        if controller_id == self._broker_id and self._controller is not None:
            return set(self._controller.registered_brokers) - {self._broker_id}
        return {controller_id} & image.brokers.keys() - {self._broker_id}

    def _watch_anew(self) -> None:
        self._watch(self._whom_to_watch(self._metadata.image))

    def _watch(self, wanted: set[int]) -> None:
        for broker_id in sorted(self._watched - wanted):
            self.channel.unwatch(broker_id)
        for broker_id in sorted(wanted - self._watched):
            self.channel.watch(broker_id)
        self._watched = wanted

    def _address_of(self, broker_id: int) -> Address | None:
        """Return where another broker listens for brokers. The controller is the first to know."""
        endpoint = None if self._controller is None else self._controller.endpoint_of(broker_id)
        known = endpoint or self._metadata.image.endpoint(broker_id, self._listener_name)
        return None if known is None else Address(known.host, known.port)

    # Brokers that cannot be reached

    def _on_unreachable(self, broker_id: int, *, refused: bool) -> None:
        """React to a broker that refuses connections, or is silent."""
        controller, link = self._controller, self.controller_link
        if controller is None or link is None:
            return
        self._watch_anew()  # Another controller may have been elected.
        if controller.is_active and refused:
            controller.report_unreachable(broker_id)
        elif controller.is_active:
            self._find_out(broker_id, partial(self._check_majority, broker_id))
        elif broker_id == link.controller_id:
            self._find_out(broker_id, partial(link.broken, broker_id, refused=refused))

    def _find_out(self, broker_id: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do what is to be done about a broker, unless it is being done."""

        async def find_out() -> None:
            try:
                await work()
            finally:
                self._in_doubt.discard(broker_id)

        if broker_id not in self._in_doubt:
            self._in_doubt.add(broker_id)
            self._supervisor.spawn(find_out(), f"broker {broker_id} cannot be reached")

    async def _check_majority(self, silent_id: int) -> None:
        """Find out whether this broker, the controller, still reaches the majority."""
        active = None if self._controller is None else self._controller.active
        brokers = set(self._metadata.image.brokers)
        if active is not None:
            brokers.update(active.unreachable.on_probation())  # No metadata has them.
        others = sorted(brokers - {self._broker_id, silent_id})
        reached = await asyncio.gather(*(self.channel.reaches(other, _PROBE_SECONDS) for other in others))
        is_alone = 2 * (1 + sum(reached)) <= len(brokers)
        if is_alone and not self._is_alone:
            logger.warning("Broker %d is silent, but this broker does not reach the majority, either", silent_id)
        self._is_alone = is_alone
        # A broker that was cut off, and is no more, finds the majority and the silent one at the same time.
        if (
            not is_alone
            and self._controller is not None
            and not await self.channel.reaches(silent_id, _LAST_PROBE_SECONDS)
        ):
            self._controller.report_unreachable(silent_id)


def _about_remaining(response: ControlledShutdownResponse) -> str:
    """Return which partitions a broker that stops waits for, and what would end that."""
    names = [f"{each.topic_name}-{each.partition_index}" for each in response.remaining_partitions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    partitions = f"{len(names)} partition{'' if len(names) == 1 else 's'}"
    return (
        f"No other broker can lead {partitions} of this one yet ({', '.join(names[:_SHOWN])}{more}), because their "
        f"other replicas are not in sync, or stop as well; waiting for these, at most {_LEAVE_SECONDS:g} s in all"
    )


def _failure_reason(response: Message | None) -> str:
    if isinstance(response, ControlledShutdownResponse):
        return error_of(response.error_code).name
    return "no response"
