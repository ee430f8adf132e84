"""The partitions that have a replica on this broker, and what the controller orders about them.

The controller speaks through the same messages as in a cluster of Apache Kafka with ZooKeeper: LeaderAndIsr makes this
broker leader or follower of partitions, StopReplica ends that, with or without the data. Orders of an older controller,
or that a newer order overtook, are refused as a whole; orders with an older leader epoch, or for another topic of the
same name, one by one. Logs that a full UpdateMetadata does not assign to this broker are set aside
(``stray_replicas``). A broker that is alone gets the same orders from its own controller.

Whoever leads a partition of an internal topic is also the coordinator for it: elections and resignations of those
partitions are told to the coordinators, each with a ``CoordinatorLog`` to append to.

High watermarks are written to ``replication-offset-checkpoint`` every few seconds, so that a restarted replica knows
what it may show before its followers have reported. A log that fails (an I/O error) takes its partition out of service
here, with KAFKA_STORAGE_ERROR for everybody who waits, and is reported once.

A log is created with its topic's configuration or not at all: a partition whose topic's configuration cannot be read
gets INVALID_CONFIG.

Partitions that another broker leads are handed to whoever fetches for them (``Fetchers``); a broker that is alone has
none such. Members of a cluster also look now and then which followers have fallen behind (``run_isr_checks``).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

from oncelog.broker.replication import deserted_coordinators
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.deserted_coordinators import DesertedCoordinators, desertion_ms
from oncelog.broker.replication.fetch_session import FetchSession, FetchSessionCache
from oncelog.broker.replication.follower_connections import FollowerConnections
from oncelog.broker.replication.follower_contacts import WITHOUT_LIMIT
from oncelog.broker.replication.follower_state import NEVER
from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.orders import EPOCH_DURING_DELETE, ordered_states, ordered_stops
from oncelog.broker.replication.partition import NO_EPOCH, Partition
from oncelog.broker.replication.preferred_replica import NO_PREFERENCE, preferred_read_replica
from oncelog.broker.replication.replica_host import ReplicaHost, Spawn, loop_ms
from oncelog.broker.replication.replication_quota import ReplicationQuota
from oncelog.broker.replication.stray_replicas import is_of_another_topic, why_stray
from oncelog.broker.replication.unopened_logs import KeptOrder, UnopenedLogs
from oncelog.broker.storage.checkpoints import OffsetCheckpoint
from oncelog.broker.storage.disk_errors import is_out_of_space, is_passing
from oncelog.broker.storage.local_log import LocalLog
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.controller.cluster_image import NO_LEADER, MetadataCache, MetadataChange
from oncelog.coordinator.controller.controller_fence import NO_SEQUENCE
from oncelog.coordinator.ports import LeaderAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_ISR_RETRY_SECONDS: Final = 0.5
_LATE_MS: Final = 500
"""A look at the followers that comes so late finds fetches unread that have come meanwhile."""

OnElected: TypeAlias = Callable[[TopicPartition, CoordinatorLog], None]
OnResigned: TypeAlias = Callable[[TopicPartition], None]
OnStorageFailure: TypeAlias = Callable[[TopicPartition], None]


class Fetchers(Protocol):
    """Who copies what other brokers lead."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader, at its present epoch, until told otherwise."""

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Touch the partition no more. No effect if it is not followed."""


class ReplicaManager:
    """Owns every `Partition` of this broker."""

    def __init__(
        self,
        *,
        broker_id: int,
        log_manager: LogManager,
        high_watermarks: OffsetCheckpoint,
        metadata: MetadataCache,
        log_config: Callable[[str], LogConfig | None],
        fetch_sessions: FetchSessionCache,
        spawn: Spawn,
        monotonic_ms: Callable[[], int] = loop_ms,
        on_elected: OnElected,
        on_resigned: OnResigned,
        on_storage_failure: OnStorageFailure,
    ) -> None:
        """``log_config``: what a new log of a topic is run by; None if the topic's configuration cannot be read."""
        self.fetch_sessions = fetch_sessions
        self.follower_connections = FollowerConnections()
        self.spawn = spawn
        self._broker_id = broker_id
        self._host = ReplicaHost(broker_id=broker_id, spawn=spawn, now_ms=monotonic_ms)
        self._fetchers: Fetchers | None = None
        self._quota: ReplicationQuota | None = None
        self._log_manager = log_manager
        self._high_watermarks = high_watermarks
        self._checkpointed = high_watermarks.read() or {}
        self._metadata = metadata
        self._log_config = log_config
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._on_storage_failure = on_storage_failure
        self.orders_obeyed = 0
        """LeaderAndIsr and StopReplica requests of a current controller, so far."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.unopened = UnopenedLogs(self._carry_out)
        self._deserted = DesertedCoordinators()
        log_manager.on_log_failure = self._log_failed
        metadata.add_listener(self._set_strays_aside)

    def join_cluster(
        self,
        *,
        fetchers: Fetchers,
        propose_isr: Callable[[IsrProposal], None],
        broker_epoch: Callable[[], int],
        replica_lag_time_max_ms: int,
        fetch_wait_max_ms: int = 500,
        silence_max_ms: int = WITHOUT_LIMIT,
        coordinator_silence_max_ms: int = deserted_coordinators.DEFAULT_MS,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """From now on there are other brokers. Before the first order of a controller.

        ``fetch_wait_max_ms`` is how long a follower's fetch may wait for records, ``silence_max_ms`` how long one may
        send none until it is waited for no more, ``coordinator_silence_max_ms`` how long all may until a coordinator
        counts as deserted; ``quota`` how much they may fetch.
        """
        self._fetchers = fetchers
        self._quota = quota
        host = self._host
        host.propose_isr = propose_isr
        host.broker_epoch = broker_epoch
        host.replica_lag_time_max_ms = replica_lag_time_max_ms
        host.contacts.limit(silence_max_ms, fetch_wait_max_ms)
        host.desertion_ms = desertion_ms(coordinator_silence_max_ms, fetch_wait_max_ms)
        host.is_alive = lambda broker_id: broker_id in self._metadata.image.brokers
        host.is_offline = self._is_offline
        self._metadata.add_listener(self._on_metadata_change)

    def _is_offline(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        known = self._metadata.image.partition(topic_partition)
        return known is not None and broker_id in known.offline_replicas

    # Finding partitions

    def partition(self, topic_partition: tuple[str, int]) -> Partition | None:
        """The partition, if it has a replica here."""
        return self._partitions.get(topic_partition)

    def partitions(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def find(self, topic_partition: tuple[str, int]) -> Partition | ErrorCode:
        """The partition, led or not, or why there is none here."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            known = self._metadata.image.partition(TopicPartition(*topic_partition))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR if (log := partition.log) is not None and log.failed else partition

    def led_partition(self, topic_partition: tuple[str, int]) -> LeadingPartition | ErrorCode:
        """Return the partition, if this broker leads it, or why not."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and isinstance(leading := partition.role, LeadingPartition):
            return leading
        found = self.find(topic_partition)
        return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._metadata.image.topic_names.get(topic_id)

    def current_leader(self, topic_partition: tuple[str, int]) -> LeaderAndEpoch | None:
        """Who leads a partition, as the last LeaderAndIsr said, or else the cluster's metadata."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return self._metadata.leader(TopicPartition(*topic_partition))
        if partition.leader_id <= NO_LEADER:
            return None
        return LeaderAndEpoch(partition.leader_id, partition.leader_epoch)

    def preferred_read_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        """A follower near to a consumer; -1 if it should read here."""
        leading = partition.leading
        if leading is None:
            return NO_PREFERENCE
        return preferred_read_replica(leading, self._metadata.image.brokers, self._broker_id, rack_id, offset)

    # The controller's orders

    def topics_without_log(self, request: LeaderAndIsrRequest) -> set[str]:
        """The topics of which logs must be created to obey the request."""
        return {topic_partition.topic for topic_partition, _ in self._without_log(request)}

    def _without_log(self, request: LeaderAndIsrRequest) -> Iterator[tuple[TopicPartition, bytes]]:
        """The partitions that have no log, or only that of a former topic of this name; with their topic ids."""
        for topic_partition, topic_id, state in ordered_states(request):
            if self._broker_id in state.replicas:
                log = self._log_manager.get(topic_partition)
                if log is None or is_of_another_topic(log.topic_id, topic_id):
                    yield topic_partition, topic_id

    async def prepare_logs(self, request: LeaderAndIsrRequest) -> bool:
        """Make the files of new logs off the loop. False if another order was obeyed meanwhile.

        That one may have deleted what this one would create, so this one is to be asked for again.
        """
        orders = self.orders_obeyed
        await self._log_manager.prepare(
            (topic_partition, None if topic_id == ZERO_UUID else topic_id)
            for topic_partition, topic_id in self._without_log(request)
            if self._log_config(topic_partition.topic) is not None
        )
        return self.orders_obeyed == orders

    async def create_and_apply(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Obey a request that creates logs; REQUEST_TIMED_OUT if another one came between."""
        is_current = request.controller_epoch >= self._metadata.controller_epoch
        if is_current and not await self.prepare_logs(request):
            return LeaderAndIsrResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        return self.apply_leader_and_isr(request)

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if not self._metadata.obey(request, "LeaderAndIsr"):
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.orders_obeyed += 1
        response, in_order = LeaderAndIsrResponse(), request.sequence != NO_SEQUENCE
        for state in request.ungrouped_partition_states:
            topic_partition = TopicPartition(state.topic_name, state.partition_index)
            response.partition_errors.append(self._apply_state(topic_partition, ZERO_UUID, state, in_order))
        for topic in request.topic_states:
            errors = [
                self._apply_state(
                    TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state, in_order
                )
                for state in topic.partition_states
            ]
            # Versions before 5 carry the first form, later ones the second.
            response.partition_errors += errors
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return response

    def _apply_state(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, in_order: bool
    ) -> LeaderAndIsrPartitionError:
        """``in_order``: the request is known to be newer than all that were carried out before."""
        error = self._refusal(topic_partition, topic_id, state, in_order)
        if not error:
            self.unopened.forget(topic_partition)
            try:
                error = self._change_leadership(topic_partition, topic_id, state)
            except OSError as failure:
                order = KeptOrder(topic_partition, topic_id, state, in_order)
                error = self._cannot_open(order, failure)
        space = self._log_manager.space
        if space.is_full and error in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            error = ErrorCode.KAFKA_STORAGE_ERROR  # Done as far as it could be; the controller is to know.
        elif error and error is not ErrorCode.REPLICA_NOT_AVAILABLE:
            partition = self._partitions.get(topic_partition)
            # A controller that has just been elected repeats what is known.
            is_known = partition is not None and partition.leader_epoch == state.leader_epoch
            level = logging.DEBUG if is_known and error is ErrorCode.STALE_CONTROLLER_EPOCH else logging.WARNING
            logger.log(level, "LeaderAndIsr of %s at epoch %d: %s", topic_partition, state.leader_epoch, error.name)
        return LeaderAndIsrPartitionError(
            topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=error
        )

    def _cannot_open(self, order: KeptOrder, error: OSError) -> ErrorCode:
        """Return what the controller hears of a replica whose log cannot be opened."""
        if not is_passing(error):
            logger.error("The log of %s cannot be opened", order.topic_partition, exc_info=error)
            self._on_storage_failure(order.topic_partition)
        elif is_out_of_space(error):  # The controller is asked again when there is room.
            self._log_manager.space.note(error, str(order.topic_partition))
        else:
            self.unopened.keep(order, error)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _carry_out(self, order: KeptOrder) -> bool:
        """Carry out an order whose time has come; False if there is still no descriptor for its log."""
        topic_partition, topic_id, state, in_order = order
        known = self._metadata.image.partition(topic_partition)
        if known is None or self._broker_id not in known.replicas:
            return True  # Its topic is gone, or it was moved away, and this broker has not been told to stop it.
        self._apply_state(topic_partition, topic_id, state, in_order)
        return not self.unopened.has(topic_partition)

    def _refusal(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, in_order: bool
    ) -> ErrorCode:
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self._log_manager.get(topic_partition)
        if log is not None:
            if log.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if is_of_another_topic(log.topic_id, topic_id):
                return ErrorCode.NONE if in_order else ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._partitions.get(topic_partition)
        if partition is not None and not _is_newer(state, partition):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def _change_leadership(
        self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        known = self._log_manager.get(topic_partition)
        if known is not None and is_of_another_topic(known.topic_id, topic_id):
            self._set_aside(topic_partition, "its topic was deleted, and another one has its name")
        log = self._log_of(topic_partition, None if topic_id == ZERO_UUID else topic_id)
        if log is None:
            return ErrorCode.INVALID_CONFIG
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = Partition(topic_partition, self._host)
            self._partitions[topic_partition] = partition
        partition.topic_id = log.topic_id or ZERO_UUID
        if state.leader == self._broker_id:
            self._unfollow(topic_partition)
            if state.leader_epoch > partition.leader_epoch + 1 and partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER):
                self._tell_resigned(partition)  # Somebody else led in between, and this broker did not hear of it.
            if partition.become_leader(state, log):
                self._tell_elected(partition)
        else:
            if partition.become_follower(state, log):
                self._tell_resigned(partition)
            self._follow(partition)
        return ErrorCode.KAFKA_STORAGE_ERROR if log.failed else ErrorCode.NONE

    def _log_of(self, topic_partition: TopicPartition, topic_id: bytes | None) -> PartitionLog | None:
        """The partition's log, created if need be; None if it cannot be, for want of its topic's configuration."""
        log = self._log_manager.get(topic_partition)
        if log is None:
            config = self._log_config(topic_partition.topic)
            if config is None:
                return None
            log = self._log_manager.create(topic_partition, config, topic_id)
        elif log.topic_id is None and topic_id is not None:
            log.set_topic_id(topic_id)
        checkpointed = self._checkpointed.pop(topic_partition, None)
        if checkpointed is not None:
            log.update_high_watermark(min(max(checkpointed, log.high_watermark), log.log_end_offset))
        return log

    def _follow(self, partition: Partition) -> None:
        if self._fetchers is None:
            return
        if partition.leader_id > NO_LEADER and not partition.failed:
            self._fetchers.follow(partition)
        else:
            self._fetchers.unfollow(partition.topic_partition)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.unfollow(topic_partition)

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        if not self._metadata.obey(request, "StopReplica"):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.orders_obeyed += 1
        errors = [
            StopReplicaPartitionError(
                topic_name=topic_partition.topic,
                partition_index=topic_partition.partition,
                error_code=self._stop(topic_partition, topic_id, leader_epoch, delete),
            )
            for topic_partition, topic_id, leader_epoch, delete in ordered_stops(request)
        ]
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, topic_partition: TopicPartition, topic_id: bytes, leader_epoch: int, delete: bool) -> ErrorCode:
        log, partition = self._log_manager.get(topic_partition), self._partitions.get(topic_partition)
        if log is not None and is_of_another_topic(log.topic_id, topic_id):
            logger.warning("StopReplica of %s is for another topic of this name: nothing to stop", topic_partition)
            return ErrorCode.NONE
        self.unopened.forget(topic_partition)
        if partition is not None:
            if partition.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._retire(partition)
            if partition.log is not None:
                self._checkpointed[topic_partition] = partition.log.high_watermark
        if delete:
            self._checkpointed.pop(topic_partition, None)
            try:
                self._log_manager.delete(topic_partition)
            except OSError:
                logger.exception("The log of %s cannot be deleted", topic_partition)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _retire(self, partition: Partition) -> None:
        """Neither lead nor follow a partition any more."""
        del self._partitions[partition.topic_partition]
        self._unfollow(partition.topic_partition)
        if partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self._tell_resigned(partition)

    def _set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Stop a replica that does not belong here, and keep its files under another name. Raises ``OSError``."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._retire(partition)
        self._checkpointed.pop(topic_partition, None)
        path = self._log_manager.set_aside(topic_partition)
        logger.warning(
            "%s does not belong here, %s: set aside as %s; remove that only once the partition is in sync elsewhere",
            topic_partition,
            reason,
            path,
        )

    def _set_strays_aside(self, change: MetadataChange) -> None:
        if not change.is_full:
            return
        for log in self._log_manager:
            reason = why_stray(log.topic_partition, log.topic_id, self._broker_id, change)
            if reason is None or log.failed:
                continue
            try:
                self._set_aside(log.topic_partition, reason)
            except OSError as error:
                logger.exception("The log of %s cannot be set aside", log.topic_partition)
                if not is_passing(error):  # Else the next full update tries again.
                    self._on_storage_failure(log.topic_partition)

    def _tell_elected(self, partition: Partition) -> None:
        if partition.topic_partition.topic in INTERNAL_TOPICS and (leading := partition.leading) is not None:
            self._on_elected(partition.topic_partition, CoordinatorLog(leading))

    def _tell_resigned(self, partition: Partition) -> None:
        if partition.topic_partition.topic in INTERNAL_TOPICS:
            self._on_resigned(partition.topic_partition)

    def _log_failed(self, log: LocalLog) -> None:
        """Take a partition out of service, from within the operation that met the error."""
        topic_partition = log.topic_partition
        if self._log_manager.get(topic_partition) is not log:
            return  # Deleted meanwhile.
        self._unfollow(topic_partition)
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.stop(ErrorCode.KAFKA_STORAGE_ERROR):
            logger.error("%s is out of service: its log failed", topic_partition)
            self._tell_resigned(partition)
        self._on_storage_failure(topic_partition)

    # Followers that are throttled

    def must_wait(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets nothing of this partition for the moment: it has had too much, and is not in sync.

        One that is close behind is not held back, either: the high watermark waits for it.
        """
        quota = self._quota
        leading = partition.leading
        if quota is None or leading is None or not quota.is_throttled(partition.topic_partition):
            return False
        if replica_id in leading.progress.in_sync.isr:
            return False
        follower = leading.progress.followers.get(replica_id)
        if follower is not None and follower.is_close:
            return False
        return quota.is_exceeded(self._host.now_ms() / 1000)

    def note_sent(self, partition: Partition, size: int) -> None:
        """A follower, in sync or not, is sent so much."""
        quota = self._quota
        if quota is not None and quota.is_throttled(partition.topic_partition):
            quota.record(size, self._host.now_ms() / 1000)

    # In-sync replicas

    def follower_heard(self, session: FetchSession, now_ms: int) -> None:
        """A fetch of a follower has come."""
        attended_ms = session.attended_ms
        self._host.contacts.heard(session.replica_id, now_ms if attended_ms == NEVER else attended_ms)

    async def run_isr_checks(self) -> None:
        """Look who may join ISRs, who is silent, and more seldom who has fallen behind, for ever.

        The broker's supervisor begins it again after an exception; a partition that raises one is looked at, and then
        the others are.
        """
        seconds, since_ms = self._host.replica_lag_time_max_ms / 2000, self._host.now_ms()
        rest, contacts = min(seconds, _ISR_RETRY_SECONDS), self._host.contacts
        last_ms = since_ms
        while True:
            await asyncio.sleep(rest)
            now_ms = self._host.now_ms()
            is_late, last_ms = now_ms - last_ms > rest * 1000 + _LATE_MS, now_ms
            looks = now_ms - since_ms >= seconds * 1000
            if looks:
                since_ms = now_ms
            changed = contacts.look(now_ms, int(rest * 1000))
            failure: Exception | None = None
            for partition in list(self._partitions.values()):
                if partition.leading is None:
                    continue
                try:
                    self._check_isr(partition.leading, silence_changed=changed, is_lag_due=looks)
                except Exception as error:
                    error.add_note(f"with {partition.topic_partition}")
                    failure = failure or error
            if not is_late:
                self._look_for_deserted(now_ms)
            if failure is not None:
                raise failure

    def deserted_coordinators(self) -> Iterator[LeadingPartition]:
        """Partitions of internal topics that are led here, and of which no in-sync follower has been heard lately."""
        led = (p.leading for p in self._partitions.values() if p.topic_partition.topic in INTERNAL_TOPICS)
        return (leading for leading in led if leading is not None and leading.is_deserted)

    def _look_for_deserted(self, now_ms: int) -> None:
        deserted = {led.topic_partition: led.last_fetches_ms() for led in self.deserted_coordinators()}
        line = self._deserted.look(now_ms, deserted)
        if line is not None:
            logger.log(line.level, line.text)

    def _check_isr(self, partition: LeadingPartition, *, silence_changed: bool, is_lag_due: bool) -> None:
        if silence_changed or not self._host.contacts.silent.isdisjoint(partition.progress.in_sync.isr):
            partition.check_silence()
        partition.progress.retry_expansion()
        if is_lag_due:
            partition.check_followers()

    def _on_metadata_change(self, change: MetadataChange) -> None:
        if change.before.brokers.keys() - change.after.brokers.keys():
            for partition in self._partitions.values():
                if partition.leading is not None:
                    partition.leading.brokers_left()
        for topic_partition in newly_offline(change):
            concerned = self._partitions.get(topic_partition)
            if concerned is not None and concerned.leading is not None:
                concerned.leading.brokers_left()

    # High watermarks

    async def checkpoint_high_watermarks(self) -> None:
        await self._high_watermarks.write_off_loop(self._current_high_watermarks())

    def _current_high_watermarks(self) -> dict[TopicPartition, int]:
        offsets = dict(self._checkpointed)  # Partitions that the controller has not spoken of yet.
        for partition in self._partitions.values():
            if partition.log is not None and not partition.log.failed:
                offsets[partition.topic_partition] = partition.log.high_watermark
        return offsets

    async def stop(self) -> None:
        """Answer fetches that wait, and remember the high watermarks."""
        self.unopened.stop()
        self.fetch_sessions.close()
        await self.checkpoint_high_watermarks()


def newly_offline(change: MetadataChange) -> Iterator[TopicPartition]:
    """The partitions of which some replica has gone offline."""
    for name in change.topics:
        topic = change.after.topic(name)
        for index, partition in () if topic is None else topic.partitions.items():
            topic_partition = TopicPartition(name, index)
            before = change.before.partition(topic_partition)
            if before is not None and not set(partition.offline_replicas) <= set(before.offline_replicas):
                yield topic_partition


def _is_newer(state: LeaderAndIsrPartitionState, known: Partition) -> bool:
    """Whether an order tells more than is known. The ISR may change without an election."""
    if state.leader_epoch != known.leader_epoch:
        return state.leader_epoch > known.leader_epoch
    return state.leader == known.leader_id and state.partition_epoch > known.partition_epoch
