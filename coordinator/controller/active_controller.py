"""``ActiveController``: the controller's work during one controller epoch.

It reads the cluster, gives every partition the leader that it needs, sends everything to all brokers and resumes the
deletions and reassignments that it finds. Afterwards it reacts to changes: of registered brokers, of malformed znodes,
of full disks, to brokers that cannot be reached, and to the responses of brokers.

All of it runs in the controller's event queue. Events carry the epoch in their key, and one that is still queued when
the epoch ends does nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from oncelog.coordinator.controller.broker_changes import apply_broker_changes
from oncelog.coordinator.controller.cluster_loading import load_cluster, watch_malformed
from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.control_channel import ControlChannel
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.controller_election import Elected
from oncelog.coordinator.controller.controller_settings import ControllerSettings
from oncelog.coordinator.controller.eligible_changes import decide_eligible, depends_on_settings
from oncelog.coordinator.controller.feature_changes import ensure_features
from oncelog.coordinator.controller.full_disks import FullDisks
from oncelog.coordinator.controller.in_sync_minimums import DefaultMinimums, overriding_minimum
from oncelog.coordinator.controller.leader_elections import balance_leaders
from oncelog.coordinator.controller.leaderless_partitions import LeaderlessPartitions
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes, send_everything, send_full_metadata
from oncelog.coordinator.controller.reassignments import Reassignments
from oncelog.coordinator.controller.recovery_waits import RecoveryWaits
from oncelog.coordinator.controller.stored_settings import StoredSettings
from oncelog.coordinator.controller.topic_deletion import TopicDeletions
from oncelog.coordinator.controller.topic_ids import TopicIds
from oncelog.coordinator.controller.unreachable_backoff import UnreachableBackoff
from oncelog.coordinator.controller.unreachable_brokers import UnreachableBrokers
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.ports import BrokerChannel, WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_EXPECTED_ERRORS: Final = frozenset(
    {ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE}
)
"""Of LeaderAndIsr: the broker knows a newer state, or it cannot write, which ``FullDisks`` handles."""


class ActiveController:
    """What exists only while this broker is the controller."""

    def __init__(
        self,
        session: Session,
        elected: Elected,
        *,
        settings: ControllerSettings,
        stored: StoredSettings,
        channel: BrokerChannel,
        unreachable_backoff: UnreachableBackoff,
        wall_clock: WallClock,
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._queue = stored.queue
        state = ClusterState()
        state.on_set_aside = self._malformed_changed
        state.keeps_eligible = lambda: stored.features.keeps_eligible
        self._minimums = DefaultMinimums(stored)
        state.min_isr = self._min_isr
        overrides = stored.configs.topic_overrides
        state.unclean_election_allowed = lambda topic: stored.recovery.allows_unclean_election(overrides(topic))
        state.recovery_strategy = lambda topic: stored.recovery.strategy_of(overrides(topic))
        stored.on_min_isr = stored.on_recovery = self._defaults_changed
        self.context = ControllerContext(
            session=session,
            elected=elected,
            state=state,
            control=ControlChannel(channel, self._on_response, self._on_caught_up, state.unreachable),
            controller_id=settings.registration.broker_id,
            listener_name=settings.listener_name,
            waits=RecoveryWaits(state, wall_clock),
        )
        self.deletions = TopicDeletions(self.context)
        self.reassignments = Reassignments(self.context)
        self.leaderless = LeaderlessPartitions(self.context, self._put)
        self.unreachable = UnreachableBrokers(self.context, unreachable_backoff, self.leaderless.note_reachable)
        state.on_state = self.unreachable.note_states
        self.full_disks = FullDisks(self.context)
        self._balance_timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._restart: Callable[[], Awaitable[None]] | None = None

    # Beginning and end

    async def begin(
        self, unreachable: Collection[int], topic_ids: TopicIds, restart: Callable[[], Awaitable[None]]
    ) -> None:
        """Read the cluster, give every partition its leader, send everything to all brokers, and resume what is open.

        ``unreachable``: brokers to replace as leaders from the start. ``restart`` is called when the whole cluster must
        be read again; it ends this epoch and begins another.
        """
        self._restart = restart
        context, state = self.context, self.context.state
        # Topics may have been created without a change notification, by a release that wrote none or by another tool.
        await self._stored.load_configs(context.session)
        await load_cluster(context.session, state, self._brokers_changed)
        await topic_ids.give(context)
        state.unreachable.update(state.brokers.keys() & set(unreachable))
        stored = self._stored
        await ensure_features(context, stored.features, self._settings.features, stored.features_changed)
        # Brokers must know each other and all partitions before they lead: a coordinator takes a partition that is not
        # in its metadata for deleted.
        send_full_metadata(context, state.brokers)
        elected = await elect(context, state.partitions())
        await send_changes(context, state.partitions(), elected)
        await self.resume()
        await self._read_disk_reports()
        self._balance_later()

    async def resume(self) -> None:
        """Send brokers again what they still have to do, and complete what has been done meanwhile."""
        await self.deletions.resume(self.context.state.topics_to_delete)
        await self.reassignments.finish(self.reassignments.under_way())

    def end(self) -> None:
        """Stop. Queued events of this epoch do nothing, and pending deletions fail with NOT_CONTROLLER."""
        self._ended = True
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        self.context.end()
        self.deletions.end()
        self.unreachable.end()

    def _put(self, event: str, handle: Callable[[], Awaitable[None]]) -> None:
        self._queue.cluster.put((self.context.epoch, event), partial(self._unless_ended, handle))

    async def _unless_ended(self, handle: Callable[[], Awaitable[None]]) -> None:
        if not self._ended:
            await handle()

    def _min_isr(self, topic: str) -> int:
        override = overriding_minimum(self._stored.configs.topic_overrides(topic))
        return self._minimums.largest(self.context.state.brokers) if override is None else override

    # Changes in the metadata store

    def _brokers_changed(self) -> None:
        self._put("brokers changed", self._reread_brokers)

    async def _reread_brokers(self) -> None:
        before = self._minimums.largest(self.context.state.brokers)
        changes = await apply_broker_changes(self.context, self._brokers_changed)
        if self._minimums.largest(self.context.state.brokers) != before:
            self._defaults_changed()
        for broker_id in changes.stopped:
            self.unreachable.backoff.forget(broker_id)
        for broker_id in changes.started:
            self.reassignments.resend_deletions(broker_id)
        if changes.started:
            await self.resume()

    def _malformed_changed(self) -> None:
        self._put("malformed znodes changed", self._reread_malformed)

    async def _reread_malformed(self) -> None:
        if await watch_malformed(self.context.session, self.context.state, self._malformed_changed):
            logger.info("A malformed znode has changed: controller %d reads the cluster again", self._broker_id)
            assert self._restart is not None, "the epoch has begun"
            await self._restart()

    def topic_settings_changed(self, topic: str) -> None:
        """Elect leaders by other settings: uncleanly, say, or by another minimum of the ISR."""
        known = self.context.state.topics.get(topic)
        if known is not None:
            self.unreachable.note_states(*self.context.state.partitions([topic]))
        states = () if known is None else known.states.values()
        if not any(depends_on_settings(versioned.state) for versioned in states):
            return
        self._put(f"elect leaders of {topic}", partial(self._elect_leaders_of, topic))

    async def _elect_leaders_of(self, topic: str) -> None:
        state = self.context.state
        if topic in state.topics:
            elected = await elect(self.context, list(state.partitions([topic])))
            await send_changes(self.context, elected, elected)

    def _defaults_changed(self) -> None:
        """Decide again which replicas may lead: the settings of topics that do not say may have changed."""
        self._minimums.forget()
        self.unreachable.note_states(*self.context.state.partitions())
        self._put("eligible replicas changed", partial(decide_eligible, self.context))

    def _disks_reported(self) -> None:
        self._put("disks reported", self._read_disk_reports)

    async def _read_disk_reports(self) -> None:
        await self.full_disks.read_reports(self._disks_reported)

    # Preferred leaders

    def _balance_later(self) -> None:
        if self._settings.balance_seconds is not None:
            loop = asyncio.get_running_loop()
            self._balance_timer = loop.call_later(self._settings.balance_seconds, self._balance_now)

    def _balance_now(self) -> None:
        self._put("balance leaders", self._balance_leaders)
        self._balance_later()

    async def _balance_leaders(self) -> None:
        await balance_leaders(self.context, self._settings.tolerated_imbalance_percentage)

    # Responses of brokers

    def _on_response(self, broker_id: int, request: Message, response: Message) -> None:
        self.unreachable.on_response(broker_id, response)
        self.leaderless.note_response(broker_id, request, response)
        if self.full_disks.note_response(broker_id, response):
            self._put(f"disk of broker {broker_id}", partial(self.full_disks.apply_change, broker_id))
        if self.full_disks.note_replicas(broker_id, response):
            self._put("replicas can be written, or cannot", self.full_disks.apply_to_replicas)
        match response:
            case LeaderAndIsrResponse(error_code=0, topics=topics):
                errors = [error for topic in topics for error in topic.partition_errors if error.error_code]
                if any(error.error_code not in _EXPECTED_ERRORS for error in errors):
                    logger.error("Broker %d did not take the leadership of some partitions: %s", broker_id, errors)
            case UpdateMetadataResponse(error_code=0):
                pass
            case _ if isinstance(request, StopReplicaRequest):
                self._on_stopped(broker_id, request, response)
            case _:
                logger.warning("Broker %d responded to %s with %s", broker_id, type(request).__name__, response)

    def _on_stopped(self, broker_id: int, request: StopReplicaRequest, response: Message) -> None:
        self.reassignments.on_response(broker_id, response)
        if self.deletions.on_response(broker_id, response):
            self._put("finish deletions", self.deletions.finish_deleted)

    def _on_caught_up(self, broker_id: int) -> None:
        self._put(f"send everything to broker {broker_id}", partial(self._send_everything, broker_id))

    async def _send_everything(self, broker_id: int) -> None:
        if broker_id not in self.context.state.brokers:
            return
        await send_everything(self.context, [broker_id])
        self.reassignments.resend_deletions(broker_id)
        await self.resume()

    @property
    def _broker_id(self) -> int:
        return self._settings.registration.broker_id
