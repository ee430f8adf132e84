"""What a load makes of a log is what its records say one after the other, in whatever batches they are."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.transaction.log_records import build_record_batch, build_tombstones, encode_key, read_record
from oncelog.coordinator.transaction.log_replay import LogReplay
from oncelog.coordinator.transaction.state import NO_PARTITIONS, Transaction, TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import (
    CorruptRecord,
    NewRecord,
    build_batch,
    iter_batches,
    iter_records,
    patch_offset_and_epoch,
    read_header,
)
from oncelog.protocol.topic_partition import TopicPartition

NOW_MS = 1_750_000_000_000


def metadata(
    epoch: int = 0, *, topic: str = "t", state: TransactionState = TransactionState.ONGOING
) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset({TopicPartition(topic, 1)}),
        start_ms=NOW_MS,
        last_update_ms=NOW_MS,
    )


@dataclass(slots=True)
class Log:
    """Batches one behind the other."""

    data: bytearray = field(default_factory=bytearray)
    end_offset: int = 0

    def append(self, batch: bytearray) -> None:
        header = read_header(batch)
        patch_offset_and_epoch(batch, 0, self.end_offset, 0)
        self.end_offset += header.last_offset_delta + 1
        self.data += batch

    def load(self, cuts: Sequence[int] = ()) -> dict[str, TransactionMetadata]:
        """Replay it, in slices that end anywhere."""
        table: dict[str, Transaction] = {}
        replay = LogReplay(table)
        offset, start = 0, 0
        for cut in [*sorted(cuts), len(self.data)]:
            slice_ = bytes(self.data[start:cut])
            offset = replay.replay(slice_, offset)
            start += sum(header.size for _, header in iter_batches(slice_))
        assert offset == self.end_offset
        while replay.settle():
            pass
        return {name: transaction.metadata for name, transaction in table.items()}

    def read(self) -> dict[str, TransactionMetadata]:
        """The same, one record after the other."""
        table: dict[str, TransactionMetadata] = {}
        for position, header in iter_batches(self.data):
            if header.is_control:
                continue
            for record in iter_records(self.data, position, header, max_decompressed_bytes=1 << 20):
                entry = read_record(record)
                if entry is not None and entry.metadata is None:
                    table.pop(entry.transactional_id, None)
                elif entry is not None and entry.metadata is not None:
                    table[entry.transactional_id] = entry.metadata
        return table


def plain(rng: random.Random, name: str, epoch: int) -> bytearray:
    topic = "t" * rng.choice([1, 30, 200, 9_000])
    return build_record_batch(name, metadata(epoch, topic=topic), NOW_MS, value_version=rng.choice([0, 1]))


def unusual(rng: random.Random, name: str, epoch: int) -> bytearray:
    """What coordinators do not write, but may be there: of another broker, or left by the cleaner."""
    (record,) = _records(plain(rng, name, epoch))
    match rng.randrange(6):
        case 0:
            return build_tombstones([name, "another"] if rng.random() < 0.5 else [name], NOW_MS)
        case 1:
            return build_batch([record, record], compression=rng.choice([Compression.NONE, Compression.ZSTD]))
        case 2:
            return build_batch([record._replace(headers=[("h", b"v")])])
        case 3:
            return build_batch([record], compression=Compression.LZ4)
        case 4:
            return build_batch([NewRecord(NOW_MS, encode_key(name), b"\0\x09" + b"newer" * rng.randrange(5))])
        case _:
            return build_batch([NewRecord(NOW_MS, b"\0\x05newer key", rng.choice([None, b"\0\0"]))])


def _records(batch: bytearray) -> list[NewRecord]:
    header = read_header(batch)
    return [
        NewRecord(record.timestamp, record.key, record.value)
        for record in iter_records(batch, 0, header, max_decompressed_bytes=1 << 20)
    ]


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=80, deadline=None)
def test_load_says_what_the_records_say(seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "id-1", "b" * 59, "b" * 60, "c" * 200]
    epochs = dict.fromkeys(names, 0)
    log = Log()
    for _ in range(rng.randrange(40)):
        name = rng.choice(names)
        epochs[name] += rng.randrange(2)
        match rng.random():
            case chance if chance < 0.6:
                log.append(plain(rng, name, epochs[name]))
            case chance if chance < 0.9:
                log.append(unusual(rng, name, epochs[name]))
            case _:
                log.append(
                    build_end_txn_marker(
                        producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW_MS
                    )
                )
    cuts = [rng.randrange(len(log.data)) for _ in range(rng.randrange(3))] if log.data else []
    assert log.load(cuts) == log.read()


def test_batch_that_was_replayed_already_is_skipped() -> None:
    """A read gives the batch that holds an offset from its beginning."""
    log = Log()
    log.append(build_record_batch("a", metadata(3), NOW_MS))
    log.append(build_record_batch("a", metadata(4), NOW_MS))
    table: dict[str, Transaction] = {}
    replay = LogReplay(table)
    assert replay.replay(log.data, 1) == 2
    assert replay.replay(log.data, 2) == 2
    while replay.settle():
        pass
    assert table["a"].metadata == metadata(4)


def test_id_whose_epoch_goes_back_is_corrupt_wherever_that_is() -> None:
    for values in ([metadata(4), metadata(3)], [metadata(4), metadata(3), metadata(5)]):
        log = Log()
        for value in values:
            log.append(build_record_batch("a", value, NOW_MS))
        with pytest.raises(CorruptRecord, match=r"'a' goes back from epoch 4 to 3 at offset 1"):
            log.load()


def test_another_producer_id_begins_with_any_epoch() -> None:
    log = Log()
    log.append(build_record_batch("a", metadata(4), NOW_MS))
    log.append(build_record_batch("a", metadata(0)._replace(producer_id=8), NOW_MS))
    assert log.load()["a"].producer_epoch == 0


@pytest.mark.parametrize("damage", ["no key", "short value", "status", "length", "headers"])
def test_malformed_record_raises_corrupt_record(damage: str) -> None:
    log = Log()
    value = bytearray(_records(build_record_batch("a", metadata(), NOW_MS))[0].value or b"")
    match damage:
        case "no key":
            log.append(build_batch([NewRecord(NOW_MS, None, bytes(value))]))
        case "short value":
            log.append(build_batch([NewRecord(NOW_MS, encode_key("a"), bytes(value[:9]))]))
        case "status":
            value[16] = 99
            log.append(build_batch([NewRecord(NOW_MS, encode_key("a"), bytes(value))]))
        case "length":
            log.append(build_record_batch("a", metadata(state=TransactionState.EMPTY), NOW_MS))
            log.data[61] += 2  # The record says that it is longer than its batch.
        case _:
            log.append(build_record_batch("a", metadata(state=TransactionState.EMPTY), NOW_MS))
            log.data[-1] = 2  # There is no such header.
    with pytest.raises(CorruptRecord):
        log.load()


def test_settle_decodes_records_in_slices() -> None:
    log = Log()
    for number in range(1_000):
        log.append(build_record_batch(f"id-{number}", metadata(state=TransactionState.EMPTY), NOW_MS))
    table: dict[str, Transaction] = {}
    replay = LogReplay(table)
    replay.replay(log.data, 0)
    sizes = []
    while replay.settle():
        sizes.append(len(table))
    assert sizes == list(range(100, 1_001, 100))
    assert table["id-0"].metadata.partitions == NO_PARTITIONS
