"""Leader epochs of a log: its file, look-ups and truncation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.storage.leader_epoch_cache import EpochEntry, LeaderEpochFileCache
from tests.simulation.sim_disk import SimDisk

PATH = "/leader-epoch-checkpoint"


def cache(*entries: tuple[int, int]) -> LeaderEpochFileCache:
    epochs = LeaderEpochFileCache(SimDisk(), "")
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_epoch_file_has_the_format_of_kafka() -> None:
    disk = SimDisk()
    epochs = LeaderEpochFileCache(disk, "")
    assert not epochs.open()
    epochs.assign(0, 0)
    epochs.assign(2, 1234567890123)
    epochs.save_if_changed()
    assert disk.read(PATH) == b"0\n2\n0 0\n2 1234567890123\n"
    again = LeaderEpochFileCache(disk, "")
    assert again.open()
    assert again.entries == [EpochEntry(0, 0), EpochEntry(2, 1234567890123)]


@pytest.mark.parametrize("data", [b"", b"0\n1\n", b"0\n1\n0\n", b"0\n1\nx 0\n", bytes(20)])
def test_broken_file_tells_nothing(data: bytes) -> None:
    disk = SimDisk()
    disk.write_atomic(PATH, data)
    epochs = LeaderEpochFileCache(disk, "")
    assert not epochs.open()
    assert epochs.entries == []


def test_assigning_an_epoch_again_changes_nothing() -> None:
    epochs = cache((1, 10), (1, 20))
    assert epochs.entries == [EpochEntry(1, 10)]


def test_epoch_costs_no_write_when_it_begins() -> None:
    disk = SimDisk()
    epochs = LeaderEpochFileCache(disk, "")
    epochs.assign(3, 10)
    assert epochs.latest_epoch == 3
    assert not disk.exists(PATH)
    epochs.save_if_changed()
    assert disk.read(PATH) == b"0\n1\n3 10\n"


def test_epoch_file_that_is_up_to_date_is_not_written_again() -> None:
    disk = SimDisk()
    first = LeaderEpochFileCache(disk, "")
    first.assign(1, 10)
    first.save()
    epochs = LeaderEpochFileCache(disk, "")
    epochs.open()
    epochs.assign(2, 20)
    epochs.truncate_from_end(20)
    epochs.save_if_changed()
    assert not epochs.unsynced
    assert not epochs.is_unsaved


def test_entries_that_contradict_a_new_one_go() -> None:
    assert cache((1, 10), (2, 20), (3, 30), (4, 20)).entries == [EpochEntry(1, 10), EpochEntry(4, 20)]
    assert cache((1, 10), (5, 20), (3, 30)).entries == [EpochEntry(1, 10), EpochEntry(3, 30)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, None),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (5, (4, 30)),
        (6, (6, 100)),
        (7, None),
    ],
)
def test_end_offset_of_an_epoch_is_the_start_of_the_next(epoch: int, expected: tuple[int, int] | None) -> None:
    """B50: an epoch that is missing returns the end of the largest one before it; one before all, the first start."""
    assert cache((2, 10), (4, 20), (6, 30)).end_offset_for(epoch, 100) == expected


def test_epoch_of_an_offset_is_the_last_that_began_before() -> None:
    epochs = cache((2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("end", "kept"), [(10, []), (11, [(2, 10)]), (20, [(2, 10)]), (21, [(2, 10), (4, 20)]), (99, [(2, 10), (4, 20)])]
)
def test_truncation_from_the_end(end: int, kept: list[tuple[int, int]]) -> None:
    """B54: an epoch that began at or beyond the new end is forgotten, on disk as well once that is written."""
    disk = SimDisk()
    epochs = LeaderEpochFileCache(disk, "")
    epochs.assign(2, 10)
    epochs.assign(4, 20)
    epochs.save_if_changed()
    epochs.truncate_from_end(end)
    epochs.save_if_changed()
    again = LeaderEpochFileCache(disk, "")
    again.open()
    assert epochs.entries == again.entries == kept


@pytest.mark.parametrize(
    ("start", "kept"),
    [(5, [(2, 10), (4, 20)]), (10, [(2, 10), (4, 20)]), (15, [(2, 15), (4, 20)]), (20, [(4, 20)]), (30, [(4, 30)])],
)
def test_truncation_from_the_start(start: int, kept: list[tuple[int, int]]) -> None:
    epochs = cache((2, 10), (4, 20))
    epochs.truncate_from_start(start)
    assert epochs.entries == kept


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 20), st.integers(0, 20))))
def test_epochs_and_offsets_always_ascend(steps: list[tuple[str, int, int]]) -> None:
    epochs = cache()
    for action, epoch, offset in steps:
        if action == "assign":
            epochs.assign(epoch, offset)
        elif action == "end":
            epochs.truncate_from_end(offset)
        else:
            epochs.truncate_from_start(offset)
        entries = epochs.entries
        assert entries == sorted(entries)
        assert len({entry.epoch for entry in entries}) == len({entry.start_offset for entry in entries}) == len(entries)


def test_last_written_epoch_is_that_of_the_last_batch() -> None:
    """B110: a leader that was elected and has written nothing has no longer log than before."""
    epochs = LeaderEpochFileCache(SimDisk(), "/data/t-0")
    assert epochs.last_written(0, 0) == -1
    epochs.assign(2, 0)
    assert epochs.last_written(0, 0) == 2
    epochs.assign(3, 0)
    epochs.assign(4, 5)
    assert (epochs.latest_epoch, epochs.last_written(0, 5)) == (4, 3)
    assert epochs.last_written(0, 6) == 4
