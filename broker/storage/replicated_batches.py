"""Which batches of a fetch response a follower appends: a pure decision."""

from typing import NamedTuple

from oncelog.broker.storage.batch_scan import ScannedBatch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import crc_is_valid, iter_batches
from oncelog.protocol.schema import Buffer


class ReplicatedBatches(NamedTuple):
    """The batches that a follower appends."""

    batches: list[ScannedBatch]
    start_offset: int | None
    """Where the log must begin anew for that; None: the batches follow its end."""


def check_replicated(
    buffer: Buffer, log_end_offset: int, *, is_empty: bool, leader_epoch: int | None
) -> ReplicatedBatches | ErrorCode:
    """Return the whole batches of a response, or why they cannot be appended. Raise ``CorruptRecord``.

    Batches of epochs later than ``leader_epoch``, that of the leader which was fetched from, are left out. The first
    batch may begin before the end of a log without records: the leader's log begins inside this batch, because some of
    its records were deleted.
    """
    accepted: list[ScannedBatch] = []
    start_offset: int | None = None
    expected = log_end_offset
    for position, header in iter_batches(buffer):
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            break
        if not crc_is_valid(buffer, position, header) or header.last_offset_delta < 0:
            return ErrorCode.CORRUPT_MESSAGE
        if header.base_offset < expected:
            if accepted or not is_empty or header.last_offset < expected:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            start_offset = header.base_offset
        accepted.append(ScannedBatch(position, header, buffer, position))
        expected = header.next_offset
    return ReplicatedBatches(accepted, start_offset)
