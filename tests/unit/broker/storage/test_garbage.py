"""What nothing refers to is removed, and what cannot be removed keeps nothing else from it."""

import pytest

from oncelog.broker.storage.garbage import AT_ONCE, Garbage
from tests.unit.broker.storage.logs import DIRECTORY, new_disk
from tests.unit.broker.virtual_time import in_virtual_time


@in_virtual_time
async def test_path_that_cannot_be_removed_keeps_no_other_and_is_tried_again() -> None:
    disk = new_disk()
    paths = [f"{DIRECTORY}/{number}.log.deleted" for number in range(3)]
    for path in paths:
        disk.write_atomic(path, b"")
    garbage = Garbage(disk)
    garbage.add_files(paths, 0, AT_ONCE)
    disk.fail("remove", paths[0])
    with pytest.raises(OSError, match="Errno 5"):
        await garbage.remove_due(1)
    assert [disk.exists(path) for path in paths] == [True, False, False]
    await garbage.remove_due(1)
    assert not disk.exists(paths[0])


@in_virtual_time
async def test_delay_counts_from_a_clock_that_was_set_back() -> None:
    disk = new_disk()
    path = f"{DIRECTORY}/0.log.deleted"
    disk.write_atomic(path, b"")
    garbage = Garbage(disk)
    garbage.add_files([path], 1_000_000, 60)
    for now_ms in (1_000_059, 500, 559):
        await garbage.remove_due(now_ms)
        assert disk.exists(path), now_ms
    await garbage.remove_due(560)
    assert not disk.exists(path)
