"""A partition while another broker leads it: its log is written by a ``ReplicaFetcher``."""

from oncelog.broker.replication.watchers import Watchers
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Buffer


class FollowingPartition:
    """One replica that follows a leader at one leader epoch.

    Consumers may read it up to the high watermark (KIP-392).
    """

    __slots__ = ("_leader_epoch", "_watchers", "log")

    def __init__(self, log: PartitionLog, leader_epoch: int, watchers: Watchers) -> None:
        self.log = log
        self._leader_epoch = leader_epoch
        self._watchers = watchers

    def append(self, records: Buffer, *, high_watermark: int, log_start_offset: int) -> ErrorCode:
        """Take over what the leader responded: records from this log's end on, and the leader's offsets."""
        log = self.log
        if len(records):
            appended = log.append_as_follower(records, self._leader_epoch)
            if isinstance(appended, ErrorCode):
                return appended
        # A new leader may not know yet how much is replicated; this one, who does, need not forget it.
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.update_high_watermark(high_watermark)
            for position in self._watchers.consumers:
                position.session.progressed(position, -1, 0)
        if log_start_offset > log.log_start_offset:
            return log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
        return ErrorCode.NONE
