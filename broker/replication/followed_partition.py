"""One partition that this broker copies from its leader: what to request, and how to apply the response.

No I/O but the log's own.

A follower's log must become a prefix of its leader's. What it has beyond that was never replicated, and is found by
leader epochs (KIP-101, KIP-279): the fetch names the epoch of the last batch here, the leader returns where that epoch,
or the largest below it, ends in its own log, and the follower cuts off what lies beyond the place where both agree.
Where the two logs have different epochs that takes several rounds, each of which lowers the last epoch here. The high
watermark plays no part: it may lag behind on either side.

A follower whose end is below the leader's log start truncates its log fully and begins where the leader's log begins.
So does one without any leader epoch, whose log is empty, if the leader's log starts earlier: the leader responds that
their logs diverge there (``ReplicaProgress.must_begin_anew``).
"""

import logging
from typing import NamedTuple

from oncelog.broker.replication.following_partition import FollowingPartition
from oncelog.broker.replication.partition import NO_EPOCH, Partition
from oncelog.broker.storage.leader_epoch_cache import UNDEFINED_EPOCH_OFFSET
from oncelog.broker.storage.log_config import NO_LIMIT
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

logger = logging.getLogger(__name__)


class Position(NamedTuple):
    """The state of a follower's log that a fetch request carries for a partition."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowedPartition:
    """A partition while it follows one leader at one leader epoch; a new epoch makes a new object."""

    __slots__ = (
        "attempts",
        "key",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "partition",
        "resting",
        "sent_in",
        "sent_position",
    )

    def __init__(self, partition: Partition) -> None:
        assert partition.log is not None
        self.partition = partition
        self.key = partition.topic_id, partition.topic_partition.partition
        """How fetch requests name it, also after its log has got a topic id."""
        self.log: PartitionLog = partition.log
        self.leader_epoch = partition.leader_epoch
        self.sent_position: Position | None = None
        """The position in the last request to the leader; None if it must be sent again."""
        self.sent_in = 0
        """The number of the request that carried it."""
        self.resting = False
        """Whether it is left out of fetches for a while, after an error."""
        self.leader_high_watermark: int | None = None
        """The leader's high watermark in its last response; None before the first one."""
        self.attempts = 0
        """Fetches in a row that ended with an error."""

    def position(self) -> Position:
        """Return where the log is now."""
        log = self.log
        latest = log.epochs.latest_epoch
        last_fetched_epoch = NO_EPOCH if latest is None else latest
        return Position(self.leader_epoch, log.log_end_offset, last_fetched_epoch, log.log_start_offset)

    def build_request(self, request_number: int, max_bytes: int) -> FetchPartition:
        """Return this partition's part of a fetch request, and remember the position in it."""
        position = self.sent_position = self.position()
        self.sent_in = request_number
        return FetchPartition(
            partition=self.partition.topic_partition.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=max_bytes,
            high_watermark=self.log.high_watermark,
        )

    def accepts_response_to(self, request_number: int) -> bool:
        """Return whether the response to a request is about the log as it is now."""
        return (
            not self.resting
            and self.sent_position is not None
            and self.sent_in <= request_number
            and self.sent_position.fetch_offset == self.log.log_end_offset
        )

    @property
    def has_news(self) -> bool:
        """Whether the log differs from the position that was last sent to the leader."""
        return not self.resting and self.sent_position != self.position()

    @property
    def is_behind(self) -> bool:
        """Whether it lacks what is replicated, as far as is known."""
        return self.leader_high_watermark is None or self.log.log_end_offset < self.leader_high_watermark

    # Responses of the leader

    def take(self, reply: PartitionData) -> ErrorCode:
        """Apply the leader's reply to the log. Return NONE, or the error for which nothing was done."""
        error = error_of(reply.error_code)
        if error:
            return error
        if reply.diverging_epoch is not None:
            end = _common_end(self.log, reply.diverging_epoch)
            self._truncate_to(end)
            is_refused = self.log.failed or self.log.log_end_offset > end
            return ErrorCode.KAFKA_STORAGE_ERROR if is_refused else ErrorCode.NONE
        records = reply.records
        assert not isinstance(records, list)  # Only a broker's own responses carry a list.
        following = self.partition.role
        assert isinstance(following, FollowingPartition), "the fetcher is stopped before the role changes"
        error = following.append(
            b"" if records is None else records,
            high_watermark=reply.high_watermark,
            log_start_offset=reply.log_start_offset,
        )
        if not error:
            self.attempts = 0
            self.leader_high_watermark = reply.high_watermark
        return error

    def reset(self, leader_start_offset: int, leader_end_offset: int) -> None:
        """Cut the log, or begin it anew: the leader lost its own end, or deleted what is there."""
        if leader_end_offset < self.log.log_end_offset:
            self._truncate_to(leader_end_offset)
        elif leader_start_offset > self.log.log_end_offset:
            logger.warning("%s begins anew at offset %d", self.partition.topic_partition, leader_start_offset)
            self.log.truncate_fully_and_start_at(leader_start_offset)

    def _truncate_to(self, offset: int) -> None:
        log, name = self.log, self.partition.topic_partition
        if offset < log.high_watermark:
            logger.warning("%s is cut to offset %d, below its high watermark %d", name, offset, log.high_watermark)
        else:
            logger.info("%s is cut from offset %d to %d", name, log.log_end_offset, offset)
        log.truncate_to(offset)

    @property
    def needs_flush(self) -> bool:
        """Whether an fsync must come before the next request, by the flush policy or because the log was cut."""
        log = self.log
        interval = log.config.flush_interval_messages
        is_due = interval != NO_LIMIT and log.log_end_offset - log.flushed_offset >= interval
        return (is_due or log.flush_state.has_unsynced_truncation) and not log.failed


def _common_end(log: PartitionLog, leaders: EpochEndOffset) -> int:
    """Return the offset up to which a log can agree with its leader's.

    ``leaders`` is where the last epoch of this log, or one below, ends in the leader's log. Beyond that end the
    leader has later epochs only, and beyond the end of that epoch here this log has some that the leader lacks.
    """
    _, mine = log.end_offset_for_epoch(leaders.epoch)
    if mine == UNDEFINED_EPOCH_OFFSET:
        mine = log.log_end_offset
    return min(mine, leaders.end_offset, log.log_end_offset)
