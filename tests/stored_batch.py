"""Batches as they stand in a log: with what the leader stamps on the batch of a producer."""

from oncelog.protocol.records.record_batch import (
    NO_PARTITION_LEADER_EPOCH,
    patch_offset_and_epoch,
    read_header,
)
from oncelog.protocol.records.rewriting import stamp_max_timestamp


def stored(
    batch: bytearray,
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_log_append_time: bool = False,
) -> bytearray:
    """Stamp a batch, and return it."""
    patch_offset_and_epoch(batch, 0, base_offset, partition_leader_epoch)
    if is_log_append_time:
        header = read_header(batch)
        stamp_max_timestamp(batch, header, header.max_timestamp, is_log_append_time=True)
    return batch
