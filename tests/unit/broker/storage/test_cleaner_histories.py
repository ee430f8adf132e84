"""Random histories of a compacted log against a model of what its readers must find.

A history appends values, tombstones and transactions, cleans, truncates, deletes records, changes the cleanup policy,
crashes and restarts, in any order. The model knows the last committed value of each key. Two things are asked:

* A reader of committed records finds, after every step, these values: no deleted key comes back, nothing is missing.
* A slow reader, which takes every batch one by one as a lagging replica does, finds them, too, and sees the end of
  every transaction that it has seen data of, as long as it takes less than ``delete.retention.ms`` from start to end.

Timestamps of records are the clients' and lie anywhere; only the broker's clock counts for what compaction may remove.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import AppendOrigin, PartitionLog
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import NewRecord, build_batch, crc_is_valid, iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import MachineStopped, SimDisk
from tests.unit.broker.batches import marker
from tests.unit.broker.storage.logs import must_append, read

NAME: Final = TopicPartition("t", 0)
TOPIC_ID: Final = b"t" * 16
START_MS: Final = 1_700_000_000_000
RETENTION_MS: Final = 10_000
PRODUCERS: Final = (11, 12)
KEYS: Final = [b"a", b"b", b"c", b"d"]
STEPS: Final = 120
COMPACT: Final = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=150,
    min_cleanable_ratio=0.01,
    delete_retention_ms=RETENTION_MS,
    retention_ms=-1,
)
DELETE: Final = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)


@dataclass(slots=True)
class Entry:
    """A record that was appended."""

    offset: int
    key: bytes
    value: bytes | None
    writer: int
    """Its producer id; -1 outside of transactions."""
    is_committed: bool | None
    """None while its transaction is open."""


@dataclass(slots=True)
class SlowReader:
    """Takes every batch from the start of the log to its end, a few at a time."""

    started_ms: int
    position: int
    latest: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    """Offset and value of the last committed record of each key; a transaction's records count at their offsets."""
    undecided: dict[int, list[tuple[bytes, int, bytes | None]]] = field(default_factory=dict)

    @property
    def values(self) -> dict[bytes, bytes]:
        return {key: value for key, (_, value) in self.latest.items() if value is not None}

    def take(self, log: PartitionLog, batches: int) -> None:
        while batches > 0 and self.position < log.log_end_offset:
            records = read(log, self.position, 1).records
            if not len(records):
                self.position = log.log_end_offset
                return
            at, header = next(iter(iter_batches(records)))
            assert crc_is_valid(records, at, header)
            if header.is_control:
                found = parse_end_txn_marker(records, at, header)
                decided = self.undecided.pop(header.producer_id, [])
                if found is not None and found.commit:
                    self._apply(decided)
            else:
                taken = [
                    (record.key, record.offset, record.value)
                    for record in iter_records(records, at, header, max_decompressed_bytes=1 << 20)
                    if record.key is not None and record.offset >= self.position
                ]
                if header.is_transactional:
                    self.undecided.setdefault(header.producer_id, []).extend(taken)
                else:
                    self._apply(taken)
            self.position = header.next_offset
            batches -= 1

    def _apply(self, records: list[tuple[bytes, int, bytes | None]]) -> None:
        for key, offset, value in records:
            if offset > self.latest.get(key, (-1, None))[0]:
                self.latest[key] = offset, value


class History:
    """One log, its model, and the steps that change both."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimDisk()
        self.config = COMPACT
        self.now_ms = START_MS
        self.manager = self._manager()
        self.manager.start()
        self.log = self.manager.create(NAME, self.config, TOPIC_ID)
        self.number = 0
        self.entries: list[Entry] = []
        self.may_be_missing: set[bytes] = set()
        """Keys whose last value was truncated away: compaction may have removed those before it."""
        self.was_truncated = False
        """Then the batch with a producer's last sequence may have been compacted away before it became the last."""
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.reader: SlowReader | None = None
        self.done: list[str] = []

    def _manager(self) -> LogManager:
        return LogManager(
            self.disk,
            "/data",
            log_config=lambda topic: self.config,
            wall_clock=lambda: self.now_ms,
            rng=Random(1),
        )

    # Steps

    async def step(self) -> None:
        steps = {
            self.put: 30,
            self.put_without_key: 4,
            self.remove: 12,
            self.put_several: 6,
            self.begin_or_continue: 14,
            self.end: 12,
            self.roll: 6,
            self.clean: 18,
            self.wait: 10,
            self.truncate: 4,
            self.delete_records: 1,
            self.change_policy: 2,
            self.crash: 3,
            self.crash_while_cleaning: 2,
            self.truncate_while_cleaning: 2,
            self.restart: 2,
            self.start_anew: 1,
        }
        step = self.rng.choices(list(steps), list(steps.values()))[0]
        self.done.append(step.__name__)
        await step()
        self.read_slowly()
        self.check()

    async def put(self) -> None:
        self._append([(self.rng.choice(KEYS), self._value())])

    async def put_without_key(self) -> None:
        if self.config is DELETE:
            self._append([(None, self._value()), (self.rng.choice(KEYS), self._value())])

    async def remove(self) -> None:
        self._append([(self.rng.choice(KEYS), None)])

    async def put_several(self) -> None:
        self._append([(self.rng.choice(KEYS), self._value() if self.rng.random() < 0.7 else None) for _ in range(4)])

    async def begin_or_continue(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        self.open.add(producer_id)
        value = self._value() if self.rng.random() < 0.8 else None
        self._append([(self.rng.choice(KEYS), value)], producer_id=producer_id)

    async def end(self) -> None:
        if self.open:
            self._end(self.rng.choice(sorted(self.open)), commit=self.rng.random() < 0.6)

    async def roll(self) -> None:
        self.log.roll()

    async def wait(self) -> None:
        self.now_ms += self.rng.choice([1, RETENTION_MS // 4, RETENTION_MS])

    async def clean(self) -> None:
        await self._prepare_cleaning()
        await LogMaintenance(self.manager).clean()

    async def truncate(self) -> None:
        if self.log.log_start_offset < self.log.log_end_offset:
            self._truncate()

    async def delete_records(self) -> None:
        self._replicate()
        self.log.advance_log_start_offset(self.rng.randint(self.log.log_start_offset, self.log.last_stable_offset))
        self.reader = None
        self.log.delete_expired_segments(self.now_ms)
        await LogMaintenance(self.manager).checkpoint_log_starts()

    async def change_policy(self) -> None:
        self.config = DELETE if self.config is COMPACT else COMPACT
        self.manager.update_config(NAME.topic)

    async def crash(self) -> None:
        self._start_again(crash=True)

    async def restart(self) -> None:
        self._start_again(crash=False)

    async def crash_while_cleaning(self) -> None:
        await self._prepare_cleaning()
        self.disk.stop_after(self.rng.randint(0, 3000))
        try:
            await LogMaintenance(self.manager).clean()
        except MachineStopped:
            pass
        self._start_again(crash=True)

    async def truncate_while_cleaning(self) -> None:
        """As a follower does when the leader changes."""
        await self._prepare_cleaning()
        calls, at = 0, self.rng.randint(1, 12)

        async def truncate() -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                self.disk.delay = None
                await self.truncate()

        self.disk.delay = truncate
        await LogMaintenance(self.manager).clean()
        self.disk.delay = None

    async def start_anew(self) -> None:
        """The topic is deleted and created again; sometimes the broker dies between."""
        self.manager.delete(NAME)
        if self.rng.random() < 0.5:
            self.disk.crash("process", Random(0))
            self.manager = self._manager()
            self.manager.start()
        self.log = self.manager.create(NAME, self.config, TOPIC_ID)
        self.was_truncated = False
        self.entries.clear()
        self.open.clear()
        self.sequences.clear()
        self.may_be_missing.clear()
        self.reader = None

    # What they consist of

    def _value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number + b"x" * 40

    def _append(self, records: list[tuple[bytes | None, bytes | None]], producer_id: int = -1) -> None:
        timestamp = self.rng.choice([0, 1, START_MS - 10**9, self.now_ms])
        fields = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        data = build_batch(
            [NewRecord(timestamp + n, key, value) for n, (key, value) in enumerate(records)],
            is_transactional=producer_id >= 0,
            **fields,
        )
        origin = AppendOrigin.CLIENT if producer_id >= 0 else AppendOrigin.COORDINATOR
        offset = must_append(self.log, data, origin=origin).base_offset
        for n, (key, value) in enumerate(records):
            if key is not None:
                self.entries.append(Entry(offset + n, key, value, producer_id, None if producer_id >= 0 else True))
                if producer_id < 0:
                    self.may_be_missing.discard(key)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        must_append(self.log, marker(producer_id, commit=commit), origin=AppendOrigin.COORDINATOR)
        self.open.discard(producer_id)
        for entry in self.entries:
            if entry.writer == producer_id and entry.is_committed is None:
                entry.is_committed = commit
                if commit:
                    self.may_be_missing.discard(entry.key)

    def _replicate(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    async def _prepare_cleaning(self) -> None:
        if self.rng.random() < 0.7:
            self.log.roll()
        await self.log.flush_closed_segments_off_loop()
        self._replicate()

    def _truncate(self) -> None:
        before = self._expected()
        self.was_truncated = True
        self.log.truncate_to(self.rng.randint(self.log.log_start_offset, self.log.log_end_offset - 1))
        self.reader = None
        self.entries = [entry for entry in self.entries if entry.offset < self.log.log_end_offset]
        for producer_id in PRODUCERS:
            self._abort_what_is_open(producer_id)
        after = self._expected()
        self.may_be_missing |= {key for key, entry in before.items() if after.get(key) is not entry}

    def _abort_what_is_open(self, producer_id: int) -> None:
        """Go on after a truncation as coordinator and producer would."""
        state = self.log.producer_state.producers.get(producer_id)
        self.sequences[producer_id] = 0 if state is None else state.last_sequence + 1
        self.open.discard(producer_id)
        if state is not None and state.txn_first_offset is not None:
            for entry in self.entries:
                if entry.writer == producer_id and entry.offset >= state.txn_first_offset:
                    entry.is_committed = None
            self._end(producer_id, commit=False)

    def _start_again(self, *, crash: bool) -> None:
        if crash:
            self.disk.crash("process", Random(0))
        else:
            self.manager.close()
        self.manager = self._manager()
        self.manager.start()
        log = self.manager.get(NAME)
        assert log is not None
        for producer_id, before in self.log.producer_state.producers.items():
            after = log.producer_state.producers.get(producer_id)
            if before.last_data_offset >= log.log_start_offset and not self.was_truncated:
                assert after is not None, f"producer {producer_id} is forgotten"
                assert after.last_sequence == before.last_sequence, (before, after)
                assert after.txn_first_offset == before.txn_first_offset, (before, after)
            self.sequences[producer_id] = 0 if after is None else after.last_sequence + 1
        self.log = log
        self._replicate()
        for producer_id in PRODUCERS if self.was_truncated else ():
            if producer_id not in self.open:
                self._abort_what_is_open(producer_id)

    # What must be so

    def _expected(self) -> dict[bytes, Entry]:
        """The last committed entry of each key, from the start of the log on."""
        return {entry.key: entry for entry in self.entries if entry.is_committed}

    def read_slowly(self) -> None:
        reader = self.reader
        if reader is None or self.now_ms - reader.started_ms >= RETENTION_MS:
            self.reader = SlowReader(self.now_ms, self.log.log_start_offset)
            return
        reader.position = max(reader.position, self.log.log_start_offset)
        reader.take(self.log, self.rng.randint(0, 6))
        if reader.position == self.log.log_end_offset:
            assert set(reader.undecided) <= self.open, "a transaction whose end is gone"
            if not self.open:
                self._compare(reader.values, "a slow reader")
            self.reader = None

    def check(self) -> None:
        assert not self.log.failed
        reader = SlowReader(0, self.log.log_start_offset)
        reader.take(self.log, 10**6)
        self._compare(reader.values, "a reader")

    def _compare(self, values: dict[bytes, bytes], who: str) -> None:
        for key, entry in self._expected().items():
            found = values.get(key)
            wanted = None if entry.offset < self.log.log_start_offset else entry.value
            if key in self.may_be_missing and found is None:
                continue
            assert found == wanted, (who, key, entry.offset)
        assert set(values) <= set(self._expected())


@pytest.mark.parametrize("seed", range(60))
def test_compaction_of_any_history_keeps_what_readers_must_find(seed: int) -> None:
    history = History(seed)

    async def play() -> None:
        for _ in range(STEPS):
            await history.step()

    try:
        asyncio.run(play())
    except AssertionError as error:
        raise AssertionError(f"seed {seed} after {history.done}") from error
