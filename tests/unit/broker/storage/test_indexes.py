"""The three index files: their bytes, look-ups, truncation, and what happens to files that cannot be right."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.storage.index_file import CorruptIndex
from oncelog.broker.storage.offset_index import OffsetIndex
from oncelog.broker.storage.time_index import TimeIndex, TimestampOffset
from oncelog.broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from tests.simulation.sim_disk import SimDisk

BASE = 1000


def offset_index(disk: SimDisk) -> OffsetIndex:
    return OffsetIndex(disk, "/i", BASE)


def time_index(disk: SimDisk) -> TimeIndex:
    return TimeIndex(disk, "/i", BASE)


def transaction_index(disk: SimDisk) -> TransactionIndex:
    return TransactionIndex(disk, "/i", BASE)


def test_offset_index_bytes() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(1005, 4097)
    index.append(1000 + 0x01020304, 0x0A0B0C0D)
    index.write().close()
    assert disk.read("/i") == bytes.fromhex("00000005 00001001 01020304 0a0b0c0d")


def test_offset_index_is_appended_to() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    for step in range(3):
        index.append(1001 + step, 100 * step)
        index.write().close()
    assert len(disk.read("/i")) == 24
    again = offset_index(disk)
    again.open()
    assert len(again) == 3
    assert again.last_entry() == (1003, 200)


def test_offset_lookup_finds_the_entry_before() -> None:
    index = offset_index(SimDisk())
    assert index.lookup(5000) == 0
    for offset, position in ((1004, 50), (1009, 120), (1020, 300)):
        index.append(offset, position)
    found = {offset: index.lookup(offset) for offset in (1000, 1003, 1004, 1008, 1009, 1019, 1020, 9999)}
    assert found == {1000: 0, 1003: 0, 1004: 50, 1008: 50, 1009: 120, 1019: 120, 1020: 300, 9999: 300}
    assert [index.upper_bound_offset(position) for position in (0, 50, 51, 300, 301)] == [1004, 1004, 1009, 1020, None]


def test_truncated_offset_index_loses_its_tail_in_the_file_too() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    for offset in (1004, 1009, 1020):
        index.append(offset, offset)
    index.write().close()
    index.truncate_to(1009)
    assert len(index) == 1
    index.append(1012, 77)
    index.write().close()
    assert disk.read("/i") == bytes.fromhex("00000004 000003ec 0000000c 0000004d")


def test_released_offset_index_is_read_again() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(1004, 50)
    index.release()
    assert not disk.exists("/i"), "what is not in the file must stay in memory"
    index.write().close()
    index.release()
    assert index.lookup(1004) == 50


def test_offset_index_beyond_its_log_is_corrupt() -> None:
    index = offset_index(SimDisk())
    index.append(1004, 50)
    index.check(51)
    with pytest.raises(CorruptIndex):
        index.check(50)


@pytest.mark.parametrize("make", [offset_index, time_index, transaction_index])
def test_file_that_is_no_multiple_of_an_entry_is_corrupt(make: type) -> None:
    disk = SimDisk()
    disk.write_atomic("/i", bytes(35))
    with pytest.raises(CorruptIndex):
        make(disk).open()


@settings(max_examples=50)
@given(st.lists(st.integers(1, 50), max_size=30), st.integers(900, 2600))
def test_offset_lookup_finds_the_last_entry_at_or_below(gaps: list[int], wanted: int) -> None:
    index = offset_index(SimDisk())
    entries, offset = [(BASE - 1, 0)], BASE
    for number, gap in enumerate(gaps):
        offset += gap
        entries.append((offset, number * 10 + 1))
        index.append(*entries[-1])
    assert index.lookup(wanted) == max(position for offset, position in entries if offset <= max(wanted, BASE - 1))


def test_time_index_bytes() -> None:
    disk = SimDisk()
    index = time_index(disk)
    index.maybe_append(0x0102030405060708, 1009)
    index.write().close()
    assert disk.read("/i") == bytes.fromhex("0102030405060708 00000009")


def test_time_index_stays_monotone_whatever_is_offered() -> None:
    """B47: an entry out of order is left out; nothing stops because of it."""
    index = time_index(SimDisk())
    for timestamp, offset in ((100, 1005), (90, 1007), (100, 1008), (120, 1004), (130, 1010)):
        index.maybe_append(timestamp, offset)
    assert len(index) == 2
    assert index.last_entry == TimestampOffset(130, 1010)


def test_time_lookup_finds_the_entry_before() -> None:
    index = time_index(SimDisk())
    assert index.lookup(5) == TimestampOffset(-1, BASE)
    for timestamp, offset in ((100, 1005), (200, 1010), (300, 1015)):
        index.maybe_append(timestamp, offset)
    assert [index.lookup(timestamp).offset for timestamp in (99, 100, 199, 200, 999)] == [BASE, 1005, 1005, 1010, 1015]


def test_last_time_entry_is_known_without_loading() -> None:
    disk = SimDisk()
    index = time_index(disk)
    index.maybe_append(100, 1005)
    index.maybe_append(200, 1010)
    index.write().close()
    again = time_index(disk)
    again.open()
    assert again.last_entry == TimestampOffset(200, 1010)
    again.maybe_append(300, 1011)
    assert again.lookup(150) == TimestampOffset(100, 1005)
    again.truncate_to(1010)
    assert again.last_entry == TimestampOffset(100, 1005)


def test_transaction_index_bytes() -> None:
    disk = SimDisk()
    index = transaction_index(disk)
    assert index.write() is None
    index.append(AbortedTransaction(7, 1001, 1009, 1010))
    file = index.write()
    assert file is not None
    file.close()
    assert disk.read("/i") == bytes.fromhex("0000 0000000000000007 00000000000003e9 00000000000003f1 00000000000003f2")


ABORTED = [
    AbortedTransaction(1, 1000, 1010, 1005),
    AbortedTransaction(2, 1005, 1020, 1021),
    AbortedTransaction(1, 1030, 1040, 1041),
]


@pytest.mark.parametrize(
    ("start", "upper", "expected", "complete"),
    [
        (1000, 1005, ABORTED[:1], True),
        (1000, 1006, ABORTED[:2], True),
        (1011, 1021, ABORTED[1:2], True),
        (1011, 1022, ABORTED[1:2], True),
        (1021, 1030, [], True),
        (1021, 1031, ABORTED[2:], True),
        (1021, 1042, ABORTED[2:], False),
        (1041, 2000, [], False),
    ],
)
def test_collecting_aborted_transactions(
    start: int, upper: int, expected: list[AbortedTransaction], complete: bool
) -> None:
    index = transaction_index(SimDisk())
    for aborted in ABORTED:
        index.append(aborted)
    found: list[AbortedTransaction] = []
    assert index.collect(start, upper, found) is complete
    assert found == expected


def test_truncated_transaction_index() -> None:
    disk = SimDisk()
    index = transaction_index(disk)
    for aborted in ABORTED:
        index.append(aborted)
    for _ in range(2):
        file = index.write()
        assert file is not None
        file.close()
        index.truncate_to(1020)
    assert index.entries() == ABORTED[:1]
    again = transaction_index(disk)
    again.open()
    assert again.entries() == ABORTED[:1]


def test_index_that_was_forgotten_leaves_no_stale_file() -> None:
    disk = SimDisk()
    index = transaction_index(disk)
    index.append(ABORTED[0])
    file = index.write()
    assert file is not None
    file.close()
    fresh = transaction_index(disk)
    fresh.reset()
    file = fresh.write()
    assert file is not None
    file.close()
    assert disk.read("/i") == b""


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0001") + bytes(32),
        bytes.fromhex("0000 0000000000000007 00000000000003e9 0000000000000001 00000000000003f2"),
        bytes.fromhex("0000 0000000000000007 00000000000003f9 00000000000003f1 00000000000003f2"),
    ],
    ids=["version", "marker before the segment", "ends before it begins"],
)
def test_transaction_index_that_cannot_be_right(data: bytes) -> None:
    disk = SimDisk()
    disk.write_atomic("/i", data)
    with pytest.raises(CorruptIndex):
        transaction_index(disk).open()
