"""Loading a partition of an internal topic: how a coordinator gets the state of a partition that it now leads.

A coordinator owns a partition of its topic from the election of this broker as the partition's leader until the next
leadership change, under one leader epoch: the coordinator epoch. Nothing of an older ownership survives.

Loading is a replay to the log's END, not to the high watermark. A record between the two will become replicated and
was decided by a predecessor; a coordinator that does not know it could abort what is about to be committed. Until the
high watermark has reached that end no response may rest on the loaded state, because the record could also still be
lost. So ``load`` returns only when both have met; requests get COORDINATOR_LOAD_IN_PROGRESS until then.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.coordinator.ports import ReplicatedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, iter_batches
from oncelog.protocol.schema import Buffer

ReplayBatch: TypeAlias = Callable[[Buffer, int, BatchHeader], None]
"""(buffer, position, header) of one batch of the log."""
ReplaySlice: TypeAlias = Callable[[Buffer, int], int]
"""(buffer, offset): replay the whole batches of a buffer that reach beyond an offset, and return the offset after them;
the same offset if there is none."""

LOAD_SLICE_BYTES: Final = 64 * 1024
"""What is replayed before the loop runs again: a millisecond of transactions, some ten of other small records."""


def _is_settled() -> bool:
    return False


async def load(
    log: ReplicatedLog,
    replay: ReplaySlice,
    is_owned: Callable[[], bool],
    *,
    turn: asyncio.Lock,
    settle: Callable[[], bool] = _is_settled,
) -> bool:
    """Replay a partition to the end of its log and wait until all of that is replicated.

    ``turn`` is shared by the partitions of a coordinator: they are replayed one after the other, so that the loop is
    not held up by all of them in each of its rounds, and the first can be served before the last is read. ``settle`` is
    called when the end is reached, with pauses, until it returns False: nothing is left to do.

    ``is_owned`` is called after every pause. Returns False, without another call of ``replay``, once it returns False
    or the leadership is lost. Returns True when what was replayed, the log's end and the high watermark are one: the
    caller may open the partition before it awaits anything. Raises CorruptRecord or OSError for a log that cannot be
    read: what was replayed is of no use then, and the caller begins anew later.
    """
    offset = log.log_start_offset
    while is_owned():
        if offset < log.log_end_offset:
            async with turn:
                offset = await _replay_to_end(log, offset, replay, settle, is_owned)
        elif log.high_watermark < offset:
            if await replicated(log, offset) is not ErrorCode.NONE:
                return False
        else:
            return True
    return False


async def _replay_to_end(
    log: ReplicatedLog, offset: int, replay: ReplaySlice, settle: Callable[[], bool], is_owned: Callable[[], bool]
) -> int:
    while is_owned():
        if offset < log.log_end_offset:
            offset = _replay_slice(log, offset, replay)
        elif not settle():
            break
        await asyncio.sleep(0)
    return offset


def _replay_slice(log: ReplicatedLog, offset: int, replay: ReplaySlice) -> int:
    """Replay the batches of one read, and return the offset after them."""
    buffer = log.read(offset, LOAD_SLICE_BYTES)
    if not len(buffer):  # Compaction has removed all up to the end.
        return log.log_end_offset
    after = replay(buffer, offset)
    if after == offset:
        raise CorruptRecord(f"no whole batch at offset {offset}")
    return after


def batch_by_batch(replay: ReplayBatch) -> ReplaySlice:
    """Replay each batch by itself."""

    def replay_slice(buffer: Buffer, offset: int) -> int:
        for position, header in iter_batches(buffer):
            if header.next_offset > offset:
                replay(buffer, position, header)
                offset = header.next_offset
        return offset

    return replay_slice


def replicated(log: ReplicatedLog, end_offset: int) -> asyncio.Future[ErrorCode]:
    """Return a future of ``ReplicatedLog.when_replicated``."""
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(error: ErrorCode) -> None:
        if not future.done():
            future.set_result(error)

    log.when_replicated(end_offset, settle)
    return future
