"""A partition that has a replica on this broker: the controller's last state of it, and its role.

The role is a ``LeadingPartition`` while this broker leads, a ``FollowingPartition`` while it follows another one, and
None while it can do neither: before the controller's first request, without a leader's log, or after its log failed.
``ReplicaManager`` is the only one that changes it. A log that fails ends the role: its manager calls ``stop`` from
within the operation that failed.
"""

from typing import Final

from oncelog.broker.replication.fetch_session import FetchIsolation, FetchPosition
from oncelog.broker.replication.following_partition import FollowingPartition
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.replication.watchers import Watchers
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Partition:
    """One replica of one partition."""

    __slots__ = (
        "_host",
        "_partition_epoch",
        "leader_epoch",
        "leader_id",
        "log",
        "role",
        "topic_id",
        "topic_partition",
        "traffic",
        "watchers",
    )

    def __init__(self, topic_partition: TopicPartition, host: ReplicaHost, traffic: TopicTraffic) -> None:
        self._host = host
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.log: PartitionLog | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self._partition_epoch = NO_EPOCH
        self.role: LeadingPartition | FollowingPartition | None = None
        self.traffic = traffic
        self.watchers = Watchers()

    # The role

    @property
    def leading(self) -> LeadingPartition | None:
        """The role, if this broker leads."""
        return self.role if isinstance(self.role, LeadingPartition) else None

    @property
    def failed(self) -> bool:
        """Whether its log cannot be used any more."""
        return self.log is not None and self.log.failed

    @property
    def partition_epoch(self) -> int:
        """The version of the controller's state of this partition that is known here."""
        leading = self.leading
        return self._partition_epoch if leading is None else leading.progress.partition_epoch

    @property
    def unavailable_error(self) -> ErrorCode:
        """The error of a request that this replica cannot serve in its role."""
        return ErrorCode.KAFKA_STORAGE_ERROR if self.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def become_leader(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Lead at the epoch of ``state``. Returns whether a leadership began."""
        leading, elected = self.leading, state.leader_epoch > self.leader_epoch
        if elected:
            # Followers that have records of a later epoch than ours must find this epoch's start to truncate to.
            log.assign_epoch(state.leader_epoch)
        self._take(state, log)
        if log.failed:
            return False
        begins = leading is None
        if leading is None:
            leading = self.role = LeadingPartition(
                self.topic_partition, self._host, log, state, watchers=self.watchers, traffic=self.traffic
            )
        leading.begin_epoch(state, elected=elected)
        self.watchers.all_disturbed()
        return begins

    def become_follower(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Follow the leader of ``state``. Returns whether a leadership ended."""
        self._take(state, log)
        following = None if log.failed else FollowingPartition(log, state.leader_epoch, self.watchers)
        return self._change_role(following, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self, error: ErrorCode) -> bool:
        """End the role, for this reason. Returns whether a leadership ended."""
        return self._change_role(None, error)

    def _take(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> None:
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self._partition_epoch = state.partition_epoch

    def _change_role(self, role: FollowingPartition | None, error: ErrorCode) -> bool:
        leading = self.leading
        self.role = role
        if leading is not None:
            leading.end(error)
        self.watchers.all_disturbed()
        return leading is not None

    # Reading

    @property
    def readable_log(self) -> PartitionLog | None:
        """The log, if this broker leads or follows: consumers may read it up to the high watermark (KIP-392)."""
        return None if self.role is None else self.role.log

    @property
    def end_is_settled(self) -> bool:
        """Whether the high watermark cannot appear to go back: it has reached the start of the leader's epoch."""
        leading = self.leading
        return self.log is not None if leading is None else leading.end_is_settled

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the leader epoch that a client knows with this one (KIP-320); -1 means that it knows none."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def add_watcher(self, position: FetchPosition) -> None:
        """Wake the fetch of this position when there is more to read."""
        self.watchers.of(position)[position] = None

    def remove_watcher(self, position: FetchPosition) -> None:
        """Wake it no more."""
        self.watchers.of(position).pop(position, None)

    def visible_end(self, isolation: FetchIsolation) -> int:
        """Return the offset below which a fetch of this isolation may read."""
        log = self.readable_log
        if log is None:
            return 0
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return log.high_watermark
        return log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return about how many bytes the log has there."""
        log = self.readable_log
        return 0 if log is None else log.size_between(start_offset, end_offset)
