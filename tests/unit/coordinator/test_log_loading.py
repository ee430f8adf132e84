"""The load of a partition, and the errors of its log."""

import asyncio
from collections.abc import Callable

import pytest

from oncelog.coordinator.log_errors import coordinator_error
from oncelog.coordinator.log_loading import batch_by_batch, load
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, NewRecord, build_batch
from oncelog.protocol.schema import Buffer
from tests.unit.coordinator.running import run
from tests.unit.coordinator.transaction.world import EpochLog, Log


class Replayed:
    """Collects the offsets that a load replays."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def __call__(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        self.offsets.append(header.base_offset)


async def read(epoch_log: EpochLog, replayed: Replayed, is_owned: Callable[[], bool] = lambda: True) -> bool:
    return await load(epoch_log, batch_by_batch(replayed), is_owned, turn=asyncio.Lock())


def filled(batches: int) -> Log:
    log = Log()
    epoch_log = log.elect()
    for _ in range(batches):
        epoch_log.append(build_batch([NewRecord(0, b"key", b"value"), NewRecord(0, b"key", None)]))
    return log


def test_load_replays_every_batch_once() -> None:
    async def scenario() -> None:
        log, replayed = filled(3_000), Replayed()
        assert await read(log.elect(), replayed)
        assert replayed.offsets == [2 * number for number in range(3_000)]

    run(scenario)


def test_load_replays_what_compaction_left() -> None:
    async def scenario() -> None:
        log, replayed = filled(6), Replayed()
        del log.batches[4:]
        del log.batches[1:3]
        assert await read(log.elect(), replayed)
        assert replayed.offsets == [0, 6]

    run(scenario)


def test_load_replays_what_is_appended_meanwhile() -> None:
    async def scenario() -> None:
        log, replayed = filled(2), Replayed()
        log.high_watermark = 0
        loading = asyncio.get_running_loop().create_task(_load(log, replayed))
        for _ in range(5):
            await asyncio.sleep(0)
        log.replicates_at_once = False
        assert log.epoch_log is not None
        log.epoch_log.append(build_batch([NewRecord(0, b"late", None)]))
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


def test_load_stops_when_ownership_ends() -> None:
    async def scenario() -> None:
        log, replayed = filled(3_000), Replayed()
        assert not await read(log.elect(), replayed, lambda: len(replayed.offsets) < 1_000)
        assert len(replayed.offsets) < 3_000

    run(scenario)


def test_load_that_awaits_replication_stops_when_leadership_ends() -> None:
    async def scenario() -> None:
        log = filled(1)
        log.high_watermark = 0
        epoch_log = log.elect()
        asyncio.get_running_loop().call_later(1, log.depose)
        assert not await read(epoch_log, Replayed())

    run(scenario)


def test_load_that_awaits_replication_does_not_delay_the_next() -> None:
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


def test_load_settles_everything_before_it_returns() -> None:
    async def scenario() -> None:
        left = [3]

        def settle() -> bool:
            left[0] -= 1
            return left[0] >= 0

        replay = batch_by_batch(Replayed())
        assert await load(filled(2).elect(), replay, lambda: True, turn=asyncio.Lock(), settle=settle)
        assert left == [-1]

    run(scenario)


def test_load_of_log_without_whole_batch_raises_corrupt_record() -> None:
    async def scenario() -> None:
        log = filled(1)
        epoch_log = log.elect()
        with pytest.raises(CorruptRecord):
            await read(CutOff(log, epoch_log.leader_epoch), Replayed())

    run(scenario)


class CutOff(EpochLog):
    """A log whose reads end in the middle of a batch."""

    def read(self, start_offset: int, max_bytes: int) -> bytes:
        return super().read(start_offset, max_bytes)[:-1]


def test_log_error_becomes_coordinator_error() -> None:
    assert coordinator_error(ErrorCode.NOT_ENOUGH_REPLICAS) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator_error(ErrorCode.KAFKA_STORAGE_ERROR) is ErrorCode.NOT_COORDINATOR
    assert coordinator_error(ErrorCode.MESSAGE_TOO_LARGE) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator_error(ErrorCode.INVALID_TIMESTAMP) is ErrorCode.INVALID_TIMESTAMP
