"""The partitions that have a replica on this broker: finding them, and changing their roles.

``ReplicaControl`` carries out the controller's requests; here are the effects of that. Partitions that another broker
leads are handed to the fetchers; a broker that is alone has none. The leader of a partition of an internal topic is
also the coordinator for it, so the coordinators are notified of elections, each with a ``CoordinatorLog`` to append to,
and of resignations.

A log that fails (an I/O error) takes its partition out of service, with KAFKA_STORAGE_ERROR for all requests that wait,
and is reported once.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.early_batches import EarlyBatches
from oncelog.broker.replication.fetch_session import FetchSession, FetchSessionCache
from oncelog.broker.replication.follower_connections import FollowerConnections
from oncelog.broker.replication.follower_state import NEVER
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.preferred_replica import NO_PREFERENCE, preferred_read_replica
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.broker.storage.local_log import LocalLog
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.controller.cluster_image import NO_LEADER, MetadataCache
from oncelog.coordinator.ports import LeaderAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class Fetchers(Protocol):
    """Copies what other brokers lead."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader, at its present epoch, until ``unfollow``."""

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Touch the partition no more. No effect if it is not followed."""


class ReplicaEvents(NamedTuple):
    """What is called when something happens to a replica."""

    on_elected: Callable[[TopicPartition, CoordinatorLog], None]
    """This broker leads a partition of an internal topic."""
    on_resigned: Callable[[TopicPartition], None]
    """It leads the partition of an internal topic no more."""
    on_storage_failure: Callable[[TopicPartition], None]


class ReplicaManager:
    """Owns every ``Partition`` of this broker."""

    def __init__(
        self,
        host: ReplicaHost,
        *,
        log_manager: LogManager,
        metadata: MetadataCache,
        fetch_sessions: FetchSessionCache,
        events: ReplicaEvents,
        fetchers: Fetchers | None = None,
    ) -> None:
        """Manage the replicas of ``host``; ``fetchers``: None if this broker is alone."""
        self.host = host
        self.fetch_sessions = fetch_sessions
        self.follower_connections = FollowerConnections()
        self.events = events
        self._fetchers = fetchers
        self._log_manager = log_manager
        self._metadata = metadata
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.traffic: dict[str, TopicTraffic] = {}
        """By topic, of those that have replicas here."""
        self.early_batches = EarlyBatches(host.now_ms)
        self.own_ids: dict[bytes, str] = {}
        """Topics that the cluster's metadata have without the id that logs here have."""
        log_manager.on_log_failure = self._log_failed

    # Finding partitions

    def partition(self, topic_partition: tuple[str, int]) -> Partition | None:
        """Return the partition, if it has a replica here."""
        return self._partitions.get(topic_partition)

    def partitions(self) -> Iterator[Partition]:
        """Return all partitions that have a replica here."""
        return iter(self._partitions.values())

    def led_partitions(self) -> Iterator[LeadingPartition]:
        """Return the partitions that this broker leads."""
        return (leading for each in self._partitions.values() if (leading := each.leading) is not None)

    def deserted_coordinators(self) -> Iterator[LeadingPartition]:
        """Return the led partitions of internal topics whose in-sync followers have not fetched lately."""
        return (
            each for each in self.led_partitions() if each.topic_partition.topic in INTERNAL_TOPICS and each.is_deserted
        )

    def find(self, topic_partition: tuple[str, int]) -> Partition | ErrorCode:
        """Return the partition, led or not, or why there is none here."""
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
        """Return the name of a topic, if the cluster has one of this id."""
        return self._metadata.image.topic_names.get(topic_id) or self.own_ids.get(topic_id)

    def known_topic_ids(self) -> Mapping[str, bytes]:
        """Return the ids of the topics that the cluster's metadata, or a log, names with one."""
        logs = {log.topic_partition.topic: log.topic_id for log in self._log_manager if log.topic_id is not None}
        return logs | {name: topic_id for topic_id, name in self._metadata.image.topic_names.items()}

    def topics_without_id(self) -> Collection[str]:
        """Return the topics of which there are logs here, and none with an id."""
        logs = list(self._log_manager)
        named = {log.topic_partition.topic for log in logs if log.topic_id is not None}
        return {log.topic_partition.topic for log in logs} - named

    def current_leader(self, topic_partition: tuple[str, int]) -> LeaderAndEpoch | None:
        """Return the leader of a partition, as the last LeaderAndIsr said, or else the cluster's metadata."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return self._metadata.leader(TopicPartition(*topic_partition))
        if partition.leader_id <= NO_LEADER:
            return None
        return LeaderAndEpoch(partition.leader_id, partition.leader_epoch)

    def preferred_read_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        """Return a follower near to a consumer; -1 if it should read here."""
        leading = partition.leading
        if leading is None:
            return NO_PREFERENCE
        return preferred_read_replica(leading, self._metadata.image.brokers, self.host.broker_id, rack_id, offset)

    # Roles

    def add(self, topic_partition: TopicPartition) -> Partition:
        """Return the partition, which is made if it has no replica here yet."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            traffic = self.traffic.setdefault(topic_partition.topic, TopicTraffic())
            traffic.replicas += 1
            partition = self._partitions[topic_partition] = Partition(topic_partition, self.host, traffic)
        return partition

    def lead(self, partition: Partition, state: LeaderAndIsrPartitionState, log: PartitionLog) -> None:
        """Lead a partition at the leader epoch of ``state``."""
        self._unfollow(partition.topic_partition)
        log.producer_state.expect(self.early_batches.take(partition.topic_partition, partition.topic_id))
        if state.leader_epoch > partition.leader_epoch + 1 and partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self._resigned(partition)  # Another broker led in between, and this one got no request about it.
        if partition.become_leader(state, log):
            self._elected(partition)

    def follow(self, partition: Partition, state: LeaderAndIsrPartitionState, log: PartitionLog) -> None:
        """Follow the leader of ``state``, if there is one."""
        if partition.become_follower(state, log):
            self._resigned(partition)
        if self._fetchers is None:
            return
        if partition.leader_id > NO_LEADER and not partition.failed:
            self._fetchers.follow(partition)
        else:
            self._fetchers.unfollow(partition.topic_partition)

    def retire(self, partition: Partition) -> None:
        """Drop a partition, which is neither led nor followed any more."""
        del self._partitions[partition.topic_partition]
        partition.traffic.replicas -= 1
        if not partition.traffic.replicas:
            del self.traffic[partition.topic_partition.topic]
        self._unfollow(partition.topic_partition)
        if partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self._resigned(partition)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.unfollow(topic_partition)

    def _elected(self, partition: Partition) -> None:
        if partition.topic_partition.topic in INTERNAL_TOPICS and (leading := partition.leading) is not None:
            self.events.on_elected(partition.topic_partition, CoordinatorLog(leading))

    def _resigned(self, partition: Partition) -> None:
        if partition.topic_partition.topic in INTERNAL_TOPICS:
            self.events.on_resigned(partition.topic_partition)

    def _log_failed(self, log: LocalLog) -> None:
        """Take a partition out of service, from within the operation that met the error."""
        topic_partition = log.topic_partition
        if self._log_manager.get(topic_partition) is not log:
            return  # Deleted meanwhile.
        self._unfollow(topic_partition)
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.stop(ErrorCode.KAFKA_STORAGE_ERROR):
            logger.error("%s is out of service: its log failed", topic_partition)
            self._resigned(partition)
        self.events.on_storage_failure(topic_partition)

    # Followers that fetch from this broker

    def note_follower_contact(self, session: FetchSession, now_ms: int) -> None:
        """Note that a fetch of a follower has come."""
        attended_ms = session.attended_ms
        self.host.contacts.note_contact(session.replica_id, now_ms if attended_ms == NEVER else attended_ms)

    def must_throttle(self, partition: Partition, replica_id: int) -> bool:
        """Return whether a follower gets nothing of a partition for now: it has had too much, and is not in sync.

        A follower that is close behind is not throttled either: the high watermark waits for it.
        """
        leading = partition.leading
        if self.host.quota is None or leading is None or replica_id in leading.progress.in_sync.isr:
            return False
        follower = leading.progress.followers.get(replica_id)
        return not (follower is not None and follower.is_close) and self.host.must_throttle(partition.topic_partition)

    # High watermarks

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all partitions to the data directory."""
        await self._log_manager.checkpoints.high_watermarks.write_off_loop()

    async def stop(self) -> None:
        """Respond to fetches that wait, and write the high watermarks."""
        self.fetch_sessions.close()
        try:
            await self.checkpoint_high_watermarks()
        except OSError as error:
            if not is_transient(error):
                raise
            logger.warning("The high watermarks on the disk are older than those of this moment: %s", error)
