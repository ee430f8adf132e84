"""What both coordinators do with the internal partitions that they own.

A coordinator owns a partition of its topic from the election of this broker as the partition's leader until the next
leadership change, under one leader epoch: the coordinator epoch. Nothing of an older ownership survives.

Loading is a replay to the log's END, not to the high watermark. A record between the two will become replicated and
was decided by a predecessor; a coordinator that does not know it could abort what is about to be committed. Until the
high watermark has reached that end nothing may be answered from the loaded state, because the record could also still
be lost. So ``load`` returns only when both have met; requests get COORDINATOR_LOAD_IN_PROGRESS until then.

Afterwards a request is decided in one synchronous step and answered when the high watermark has passed its record:
in the same call where one replica is enough, else later. ``Reply`` serves both without a future in the first case.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from oncelog.coordinator.ports import ReplicatedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import java_hash as java_hash
from oncelog.protocol.internal.placement import partition_for as partition_for
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, iter_batches
from oncelog.protocol.schema import Buffer

T = TypeVar("T")
R = TypeVar("R")

Answer: TypeAlias = T | asyncio.Future[T] | Coroutine[Any, Any, T]
"""What a coordinator returns for a request.

A value: the answer, now. A future: every effect is done, the answer comes when they are durable. A coroutine: nothing
is done yet, and whoever keeps the order of a connection's requests must run it to its end before the next one.
"""

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
    called when the end is reached, again and again with pauses, until it says that it had nothing left to do.

    ``is_owned`` is asked again after every pause. Returns False, and ``replay`` is not called any more, once it says no
    or the leadership is lost. When it returns True, nothing lies between what was replayed, the log's end and the high
    watermark, and the caller may open the partition before it awaits anything. Raises CorruptRecord or
    OSError for a log that cannot be read: what was replayed is of no use then, and the caller begins anew later.
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
    """Replay what one read gives, and return the offset after it."""
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
    """``ReplicatedLog.when_replicated`` as a future."""
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(error: ErrorCode) -> None:
        if not future.done():
            future.set_result(error)

    log.when_replicated(end_offset, settle)
    return future


_COORDINATOR_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(log_error: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator's own log refused a record, or lost its leader."""
    return _COORDINATOR_ERRORS.get(log_error, log_error)


class Reply(Generic[T]):
    """Takes the one answer of a request, whenever it comes; later ones are ignored."""

    __slots__ = ("_future", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._future: asyncio.Future[T] | None = None

    @property
    def is_given(self) -> bool:
        return self._value is not None

    def __call__(self, value: T) -> None:
        if self._value is not None:
            return
        self._value = value
        if self._future is not None and not self._future.done():
            self._future.set_result(value)

    def answer(self) -> T | asyncio.Future[T]:
        """The answer if it is there, else a future of it."""
        if self._value is not None:
            return self._value
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future


def map_answer(answer: Answer[T], shape: Callable[[T], R]) -> R | asyncio.Future[R] | Coroutine[Any, Any, R]:
    """The same answer in another shape, with what it says about waiting kept."""
    if isinstance(answer, asyncio.Future):
        return _map_future(answer, shape)
    if isinstance(answer, CoroutineType):
        return _map_coroutine(answer, shape)
    return shape(cast(T, answer))


def _map_future(answer: asyncio.Future[T], shape: Callable[[T], R]) -> asyncio.Future[R]:
    mapped: asyncio.Future[R] = answer.get_loop().create_future()

    def settle(done: asyncio.Future[T]) -> None:
        if mapped.done():
            return  # The connection is gone.
        if done.cancelled():
            mapped.cancel()
            return
        try:
            mapped.set_result(shape(done.result()))
        except Exception as error:
            mapped.set_exception(error)

    answer.add_done_callback(settle)
    return mapped


async def _map_coroutine(answer: Coroutine[Any, Any, T], shape: Callable[[T], R]) -> R:
    return shape(await answer)


class Deadlines:
    """Callbacks after one fixed delay: a single timer of the loop, however many of them wait."""

    __slots__ = ("_delay", "_last_key", "_timer", "_waiting")

    def __init__(self, delay_ms: int) -> None:
        self._delay = delay_ms / 1000
        self._waiting: OrderedDict[int, tuple[float, Callable[[], None]]] = OrderedDict()
        self._last_key = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, callback: Callable[[], None]) -> int:
        """Call back after the delay, unless the returned key is cancelled before."""
        loop = asyncio.get_running_loop()
        self._last_key += 1
        self._waiting[self._last_key] = (loop.time() + self._delay, callback)
        if self._timer is None:
            self._timer = loop.call_later(self._delay, self._fire)
        return self._last_key

    def cancel(self, key: int) -> None:
        """Forget a callback; one that was called already is no error."""
        self._waiting.pop(key, None)

    def stop(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        """Call what is due. They were added in the order in which they are due."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                key = next(iter(self._waiting))
                when, callback = self._waiting[key]
                if when > loop.time():
                    break
                del self._waiting[key]
                callback()
        finally:  # The timer counts as set until here, so that callbacks may add.
            self._timer = None
            if self._waiting:
                when, _ = next(iter(self._waiting.values()))
                self._timer = loop.call_at(when, self._fire)


class Backoff:
    """Callbacks after a delay that doubles with every attempt up to a limit, on a handful of timers."""

    __slots__ = ("_steps",)

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        delays = [first_ms]
        while delays[-1] < limit_ms:
            delays.append(min(2 * delays[-1], limit_ms))
        self._steps = [Deadlines(delay) for delay in delays]

    def __len__(self) -> int:
        return sum(map(len, self._steps))

    def add(self, attempt: int, callback: Callable[[], None]) -> None:
        """Call back before the ``attempt``-th attempt after the first one (1, 2, …)."""
        self._steps[min(attempt, len(self._steps)) - 1].add(callback)

    def stop(self) -> None:
        for step in self._steps:
            step.stop()
