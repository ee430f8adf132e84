"""What the coordinators share: where an id lives, answers with and without waiting, and timers."""

import asyncio
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.runtime import (
    Backoff,
    Deadlines,
    Reply,
    batch_by_batch,
    coordinator_error,
    java_hash,
    load,
    map_answer,
    partition_for,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, NewRecord, build_batch
from oncelog.protocol.schema import Buffer
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.coordinator.transaction.world import Log, Term


def run(scenario: Callable[[], object]) -> None:
    """Run an async function in virtual time."""
    loop = VirtualLoop(random.Random(0))
    try:
        loop.run_until_complete(scenario())  # type: ignore[arg-type]
    finally:
        loop.close()


# Where an id lives. The hashes are Java's, computed by its String.hashCode.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("transactional-id", 510590431),
        ("group-中文", 506956552),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("𝄞", 1772394),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(st.text(st.characters(), min_size=250, max_size=300))
def test_the_hash_of_long_text_is_that_of_its_units(text: str) -> None:
    expected = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        expected = (31 * expected + unit) & 0xFFFF_FFFF
    assert java_hash(text) & 0xFFFF_FFFF == expected


def test_the_one_hash_without_an_absolute_value_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22


# Answers


def test_an_answer_that_is_there_needs_no_loop() -> None:
    reply: Reply[int] = Reply()
    reply(1)
    reply(2)
    assert reply.is_given
    assert reply.answer() == 1
    assert map_answer(reply.answer(), str) == "1"


def test_an_answer_that_comes_later_is_a_future() -> None:
    async def scenario() -> None:
        reply: Reply[int] = Reply()
        answer = map_answer(reply.answer(), str)
        assert isinstance(answer, asyncio.Future)
        reply(1)
        reply(2)
        assert await answer == "1"

    run(scenario)


def test_an_answer_to_a_connection_that_is_gone_is_dropped() -> None:
    async def scenario() -> None:
        reply: Reply[int] = Reply()
        answer = map_answer(reply.answer(), str)
        assert isinstance(answer, asyncio.Future)
        answer.cancel()
        reply(1)
        await asyncio.sleep(0)
        assert answer.cancelled()

    run(scenario)


def test_an_answer_that_must_be_worked_for_stays_a_coroutine() -> None:
    async def work() -> int:
        return 1

    async def scenario() -> None:
        answer = map_answer(work(), str)
        assert asyncio.iscoroutine(answer)
        assert await answer == "1"

    run(scenario)


def test_a_shape_that_fails_fails_the_answer() -> None:
    async def scenario() -> None:
        reply: Reply[int] = Reply()
        answer = map_answer(reply.answer(), lambda value: 1 // value)
        assert isinstance(answer, asyncio.Future)
        reply(0)
        with pytest.raises(ZeroDivisionError):
            await answer

    run(scenario)


# Timers


def test_deadlines_pass_in_their_order_unless_cancelled() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed: list[tuple[str, float]] = []
        deadlines = Deadlines(10)

        def note(name: str) -> Callable[[], None]:
            return lambda: passed.append((name, round(loop.time(), 3)))

        deadlines.add(note("first"))
        second = deadlines.add(note("second"))
        await asyncio.sleep(0.004)
        deadlines.add(note("third"))
        deadlines.cancel(second)
        assert len(deadlines) == 2
        await asyncio.sleep(1)
        assert passed == [("first", 0.01), ("third", 0.014)]
        deadlines.add(note("never"))
        deadlines.stop()
        await asyncio.sleep(1)
        assert len(passed) == 2

    run(scenario)


def test_a_deadline_may_set_another() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed: list[float] = []
        deadlines = Deadlines(10)

        def again() -> None:
            passed.append(round(loop.time(), 3))
            if len(passed) < 4:
                deadlines.add(again)

        deadlines.add(again)
        await asyncio.sleep(1)
        assert passed == [0.01, 0.02, 0.03, 0.04]

    run(scenario)


def test_a_deadline_that_fails_does_not_keep_the_others_from_passing() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        passed: list[int] = []
        deadlines = Deadlines(10)
        deadlines.add(lambda: 1 // 0)  # type: ignore[arg-type]
        deadlines.add(lambda: passed.append(1))
        await asyncio.sleep(1)
        assert passed == [1]
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    run(scenario)


def test_a_backoff_doubles_up_to_its_limit() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(20, 100)
        delays = []
        for attempt in range(1, 7):
            begin, passed = loop.time(), asyncio.Event()
            backoff.add(attempt, passed.set)
            await passed.wait()
            delays.append(round(loop.time() - begin, 3))
        assert delays == [0.02, 0.04, 0.08, 0.1, 0.1, 0.1]
        backoff.add(1, passed.set)
        assert len(backoff) == 1
        backoff.stop()
        assert len(backoff) == 0

    run(scenario)


# Loading


class Replayed:
    """Collects the offsets that a load replays."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def __call__(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        self.offsets.append(header.base_offset)


async def read(term: Term, replayed: Replayed, is_owned: Callable[[], bool] = lambda: True) -> bool:
    return await load(term, batch_by_batch(replayed), is_owned, turn=asyncio.Lock())


def filled(batches: int) -> Log:
    log = Log()
    term = log.elect()
    for _ in range(batches):
        term.append(build_batch([NewRecord(0, b"key", b"value"), NewRecord(0, b"key", None)]))
    return log


def test_everything_is_replayed_once() -> None:
    async def scenario() -> None:
        log, replayed = filled(3_000), Replayed()
        assert await read(log.elect(), replayed)
        assert replayed.offsets == [2 * number for number in range(3_000)]

    run(scenario)


def test_what_compaction_has_left_is_replayed() -> None:
    async def scenario() -> None:
        log, replayed = filled(6), Replayed()
        del log.batches[4:]
        del log.batches[1:3]
        assert await read(log.elect(), replayed)
        assert replayed.offsets == [0, 6]

    run(scenario)


def test_what_is_appended_during_the_load_is_replayed_too() -> None:
    async def scenario() -> None:
        log, replayed = filled(2), Replayed()
        log.high_watermark = 0
        loading = asyncio.get_running_loop().create_task(_load(log, replayed))
        for _ in range(5):
            await asyncio.sleep(0)
        log.replicates_at_once = False
        assert log.term is not None
        log.term.append(build_batch([NewRecord(0, b"late", None)]))
        log.replicate(4)
        for _ in range(5):
            await asyncio.sleep(0)
        assert replayed.offsets == [0, 2, 4]
        assert not loading.done()
        log.replicate()
        assert await loading

    run(scenario)


async def _load(log: Log, replayed: Replayed) -> bool:
    return await read(log.elect(), replayed)


def test_a_load_stops_where_the_ownership_ends() -> None:
    async def scenario() -> None:
        log, replayed = filled(3_000), Replayed()
        assert not await read(log.elect(), replayed, lambda: len(replayed.offsets) < 1_000)
        assert len(replayed.offsets) < 3_000

    run(scenario)


def test_a_load_that_waits_stops_when_the_leadership_ends() -> None:
    async def scenario() -> None:
        log = filled(1)
        log.high_watermark = 0
        term = log.elect()
        asyncio.get_running_loop().call_later(1, log.depose)
        assert not await read(term, Replayed())

    run(scenario)


def test_logs_are_read_one_after_the_other_and_who_waits_for_replicas_holds_up_nobody() -> None:
    async def scenario() -> None:
        loop, turn, order = asyncio.get_running_loop(), asyncio.Lock(), []
        logs = [filled(3_000) for _ in range(3)]
        logs[0].high_watermark = 0

        async def one(number: int) -> None:
            replay = batch_by_batch(lambda buffer, position, header: order.append(number))
            assert await load(logs[number].elect(), replay, lambda: True, turn=turn)
            order.append(number + 10)

        loads = [loop.create_task(one(number)) for number in range(3)]
        await asyncio.gather(*loads[1:])
        assert not loads[0].done()
        logs[0].replicate()
        await loads[0]
        firsts = [number for number, before in zip(order, [-1, *order], strict=False) if number != before]
        assert firsts == [0, 1, 2, 11, 12, 10] or firsts == [0, 1, 11, 2, 12, 10], firsts

    run(scenario)


def test_what_is_left_to_do_at_the_end_is_done_before_anything_is_answered() -> None:
    async def scenario() -> None:
        left = [3]

        def settle() -> bool:
            left[0] -= 1
            return left[0] >= 0

        replay = batch_by_batch(Replayed())
        assert await load(filled(2).elect(), replay, lambda: True, turn=asyncio.Lock(), settle=settle)
        assert left == [-1]

    run(scenario)


def test_a_log_without_a_whole_batch_where_one_should_be_is_corrupt() -> None:
    async def scenario() -> None:
        log = filled(1)
        term = log.elect()
        with pytest.raises(CorruptRecord):
            await read(CutOff(log, term.leader_epoch), Replayed())

    run(scenario)


class CutOff(Term):
    """A log whose reads end in the middle of a batch."""

    def read(self, start_offset: int, max_bytes: int) -> bytes:
        return super().read(start_offset, max_bytes)[:-1]


def test_errors_of_the_log_become_errors_of_the_coordinator() -> None:
    assert coordinator_error(ErrorCode.NOT_ENOUGH_REPLICAS) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator_error(ErrorCode.KAFKA_STORAGE_ERROR) is ErrorCode.NOT_COORDINATOR
    assert coordinator_error(ErrorCode.MESSAGE_TOO_LARGE) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator_error(ErrorCode.INVALID_TIMESTAMP) is ErrorCode.INVALID_TIMESTAMP
