"""Snapshots of producers that change while they are encoded."""

import asyncio
from collections import defaultdict
from random import Random

import pytest

from oncelog.broker.storage.frozen_producers import FrozenProducers, encode_entry
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.producer_snapshots import decode_snapshot, encode_snapshot
from oncelog.broker.storage.producer_state_entry import ProducerStateEntry
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import DIRECTORY, end_txn, must_append, new_disk, open_log

PRODUCERS = 12
CONFIG = LogConfig(segment_bytes=1 << 20)


def encoded(log: PartitionLog) -> set[bytes]:
    return {encode_entry(entry) for entry in log.producer_state.producers.values()}


class Writers:
    """Producers that write, and begin and end transactions, in an order that the seed decides."""

    def __init__(self, log: PartitionLog, rng: Random) -> None:
        self.log, self.rng = log, rng
        self.sequences: dict[int, int] = defaultdict(int)

    def write(self, count: int) -> None:
        for _ in range(count):
            producer_id = self.rng.randrange(PRODUCERS)
            if self.log.producer_state.has_ongoing_transaction(producer_id, 0) and self.rng.random() < 0.4:
                end_txn(self.log, marker(producer_id, commit=self.rng.random() < 0.5))
                continue
            sequence = self.sequences[producer_id]
            must_append(self.log, batch(producer_id=producer_id, epoch=0, sequence=sequence, transactional=True))
            self.sequences[producer_id] += 1


@pytest.mark.parametrize("seed", range(50))
async def test_snapshot_is_that_of_its_offset_whatever_happens_before_it_is_written(seed: int) -> None:
    rng, disk = Random(seed), new_disk()
    log = open_log(disk, CONFIG)
    writers = Writers(log, rng)
    frozen: dict[int, set[bytes]] = {}
    for _ in range(rng.randrange(1, 4)):
        writers.write(rng.randrange(1, 40))
        log.roll()
        frozen[log.log_end_offset] = encoded(log)
        for each in log.producer_state.frozen:
            each.encode_some(rng.randrange(PRODUCERS))
        writers.write(rng.randrange(40))
        if rng.random() < 0.3:
            log.producer_state.expire(1 << 60, 0)
            for producer_id in set(writers.sequences) - set(log.producer_state.producers):
                del writers.sequences[producer_id]
    await log.flush_closed_segments_off_loop()
    assert log.producer_state.frozen == []
    for offset, producers in frozen.items():
        entries = decode_snapshot(disk.read(f"{DIRECTORY}/{offset:020}.snapshot"))
        assert {encode_entry(entry) for entry in entries} == producers


async def test_truncation_while_a_snapshot_is_encoded_leaves_no_file_behind() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    log.update_high_watermark(0)
    writers = Writers(log, Random(1))
    writers.write(30)
    log.roll()
    writers.write(5)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(log.flush_closed_segments_off_loop())
        await asyncio.sleep(0)
        log.truncate_to(10)
    assert log.snapshots.offsets == ()
    assert not [name for name in disk.list_dir(DIRECTORY) if "snapshot" in name]


def test_producers_are_encoded_in_portions_and_once_each() -> None:
    producers = {number: ProducerStateEntry(number, number) for number in range(10)}
    frozen = FrozenProducers(producers, 7)
    assert frozen.encode_some(4)
    frozen.keep(2)
    frozen.keep(9)
    assert frozen.encode_some(4)
    assert not frozen.encode_some(4)
    expected = encode_snapshot([producers[number] for number in (0, 1, 2, 3, 9, 4, 5, 6, 7, 8)])
    assert expected.endswith(frozen.encoded())
    assert len(decode_snapshot(expected)) == 10


@pytest.mark.parametrize("seed", range(20))
async def test_truncation_on_a_full_disk_goes_on_from_what_is_frozen(seed: int) -> None:
    """A cut needs no room: what the next flush is to write is in memory."""
    rng, disk = Random(seed), new_disk()
    log = open_log(disk, CONFIG)
    writers = Writers(log, rng)
    states: dict[int, set[bytes]] = {}
    for _ in range(3):
        writers.write(15)
        log.roll()
        states[log.log_end_offset] = encoded(log)
    writers.write(15)
    disk.fill()
    cut = rng.choice(list(states))
    log.truncate_to(cut)
    assert (log.failed, log.log_end_offset) == (False, cut)
    assert encoded(log) == states[cut]
    disk.make_room()
    log.roll()
    await log.flush_closed_segments_off_loop()
    for offset in (each for each in states if each <= cut):
        entries = decode_snapshot(disk.read(f"{DIRECTORY}/{offset:020}.snapshot"))
        assert {encode_entry(entry) for entry in entries} == states[offset]
