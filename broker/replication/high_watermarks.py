"""The high watermarks in ``replication-offset-checkpoint``: what a restarted leader may show before followers fetch."""

from collections.abc import Iterable

from oncelog.broker.replication.partition import Partition
from oncelog.broker.storage.checkpoints import OffsetCheckpoint
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.topic_partition import TopicPartition


class HighWatermarks:
    """The checkpoint of one data directory, and what it says of partitions that have no role yet."""

    def __init__(self, checkpoint: OffsetCheckpoint) -> None:
        """Read the checkpoint."""
        self._checkpoint = checkpoint
        self._known = checkpoint.read() or {}

    def restore(self, log: PartitionLog) -> None:
        """Give a log that is taken into use the high watermark that is known of it."""
        known = self._known.pop(log.topic_partition, None)
        if known is not None:
            log.update_high_watermark(min(max(known, log.high_watermark), log.log_end_offset))

    def keep(self, log: PartitionLog) -> None:
        """Remember the high watermark of a log that is put out of use."""
        self._known[log.topic_partition] = log.high_watermark

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop what is known of a log that is deleted."""
        self._known.pop(topic_partition, None)

    async def write(self, partitions: Iterable[Partition]) -> None:
        """Write the checkpoint, off the loop: what is known, and the partitions in use."""
        offsets = dict(self._known)
        for partition in partitions:
            if partition.log is not None and not partition.log.failed:
                offsets[partition.topic_partition] = partition.log.high_watermark
        await self._checkpoint.write_off_loop(offsets)
