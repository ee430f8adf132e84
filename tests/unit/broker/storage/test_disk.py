"""What both disks, the real and the simulated, must do alike; and what only the simulated one can."""

import asyncio
import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from oncelog.broker.storage.directory_identity import is_identity
from oncelog.broker.storage.disk import AlreadyLocked, Disk, LocalDisk
from tests.simulation.sim_disk import MachineStopped, SimDisk


@pytest.fixture(params=["local", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    if request.param == "local":
        yield LocalDisk(), str(tmp_path)
    else:
        disk = SimDisk()
        disk.make_dirs("/root")
        yield disk, "/root"


@pytest.mark.real_loop
async def test_reading_and_writing(place: tuple[Disk, str]) -> None:
    disk, root = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/f")
    file = disk.open(f"{root}/f", create=True)
    assert file.append((b"abc",)) == 3
    assert file.append((b"de", memoryview(b"fg"), bytearray(b"h"))) == 5
    assert file.size() == 8
    assert file.write_at(b"BC", 1) == 2
    assert file.read_at(100, 1) == b"BCdefgh"
    assert file.read_at(2, 3) == b"de"
    assert file.read_at(2, 8) == b""
    assert await file.read_at_off_loop(3, 5) == b"fgh"
    found = file.try_read_at(4, 0)
    assert found is None or bytes(found) == b"aBCd"
    file.truncate(4)
    assert file.append((b"!",)) == 1
    file.sync()
    await file.sync_off_loop()
    assert disk.read(f"{root}/f") == b"aBCd!"
    assert disk.open(f"{root}/f").append((b"?",)) == 1
    assert file.read_at(9, 4) == b"!?"


@pytest.mark.real_loop
async def test_closed_file_is_of_no_use(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.close()
    file.close()
    for act in (lambda: file.append((b"x",)), lambda: file.read_at(1, 0), file.sync, lambda: file.truncate(0)):
        with pytest.raises(OSError, match=r".*"):
            act()
    with pytest.raises(OSError, match=r".*"):
        await file.sync_off_loop()


@pytest.mark.real_loop
async def test_duplicate_of_a_closed_file_can_be_synced(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.append((b"abc",))
    duplicate = file.dup()
    file.close()
    disk.rename(f"{root}/f", f"{root}/g")
    await duplicate.sync_off_loop()
    duplicate.sync()
    duplicate.close()
    with pytest.raises(OSError, match=r".*"):
        duplicate.sync()


@pytest.mark.real_loop
async def test_disk_lists_and_renames_files(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/a/b")
    disk.make_dirs(f"{root}/a/b")
    disk.open(f"{root}/a/2", create=True).append((b"22",))
    disk.open(f"{root}/a/1", create=True)
    assert disk.list_dir(f"{root}/a") == ["1", "2", "b"]
    disk.rename(f"{root}/a/2", f"{root}/a/1")
    assert disk.read(f"{root}/a/1") == b"22"
    assert disk.file_size(f"{root}/a/1") == 2
    assert (disk.exists(f"{root}/a/2"), disk.exists(f"{root}/a/1"), disk.exists(f"{root}/a/b")) == (False, True, True)
    assert (disk.is_dir(f"{root}/a/1"), disk.is_dir(f"{root}/a/b"), disk.is_dir(f"{root}/x")) == (False, True, False)
    disk.sync_dir(f"{root}/a")
    await disk.sync_dir_off_loop(f"{root}/a")
    disk.remove(f"{root}/a/1")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/a/1")
    with pytest.raises(FileNotFoundError):
        await disk.remove_off_loop(f"{root}/a/1")
    disk.open(f"{root}/a/b/deep", create=True)
    disk.remove_tree(f"{root}/a")
    await disk.remove_tree_off_loop(f"{root}/a")
    assert disk.list_dir(root) == []
    total, usable = disk.usage(root)
    assert 0 < usable <= total


@pytest.mark.real_loop
async def test_replacing_a_file(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.write_atomic(f"{root}/f", b"one, longer")
    await disk.write_atomic_off_loop(f"{root}/f", b"two")
    disk.write_atomic(f"{root}/g", b"three", sync=False)
    assert (disk.read(f"{root}/f"), disk.read(f"{root}/g")) == (b"two", b"three")
    assert disk.list_dir(root) == ["f", "g"]


def test_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(AlreadyLocked):
        disk.lock(f"{root}/.lock")
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_lock_that_is_taken_names_the_process_that_holds_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = LocalDisk().lock(path)
    with pytest.raises(AlreadyLocked) as raised:
        LocalDisk().lock(path)
    assert (str(raised.value), raised.value.holder) == (path, os.getpid())
    lock.release()


@pytest.mark.real_loop
async def test_file_closed_during_a_call_off_the_loop(tmp_path: Path) -> None:
    file = LocalDisk().open(str(tmp_path / "f"), create=True)
    file.append((b"abc",))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(file.read_at_off_loop(3, 0))
        await asyncio.sleep(0)
        file.close()
        other = LocalDisk().open(str(tmp_path / "other"), create=True)
        other.append((b"xyz",))
    assert reading.result() == b"abc"
    other.close()


# The simulated disk only


async def test_simulated_calls_off_the_loop_end_although_the_file_is_closed_meanwhile() -> None:
    disk = SimDisk()
    disk.sync_dir("/")
    file = disk.open("/f", create=True)
    disk.sync_dir("/")
    file.append((b"abc",))
    disk.delay = partial(asyncio.sleep, 1.0)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(file.read_at_off_loop(3, 0))
        group.create_task(file.sync_off_loop())
        await asyncio.sleep(0.5)
        file.close()
    assert reading.result() == b"abc"
    disk.crash("power", Random(0))
    assert disk.read("/f") == b"abc"


@pytest.mark.real_loop
async def test_many_syncs_at_once_all_end_each_with_its_own_outcome(tmp_path: Path) -> None:
    disk = LocalDisk()
    files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(50)]
    for file in files:
        file.append((b"abc",))
    files[25:25] = [disk.open(os.devnull)]  # A device that cannot be synced.
    outcomes = await asyncio.gather(*(file.sync_off_loop() for file in files), return_exceptions=True)
    errors = [(number, error) for number, error in enumerate(outcomes) if error is not None]
    assert [(number, type(error)) for number, error in errors] == [(25, OSError)]


@pytest.mark.real_loop
async def test_sync_whose_waiter_is_cancelled_leaves_the_others_alone(tmp_path: Path) -> None:
    disk = LocalDisk()
    files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(3)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(file.sync_off_loop()) for file in files]
        await asyncio.sleep(0)
        tasks[1].cancel()
        for file in files:
            file.close()
    assert [task.cancelled() for task in tasks] == [False, True, False]
    await disk.open(str(tmp_path / "0")).sync_off_loop()


def test_disk_serves_one_event_loop_after_the_other(tmp_path: Path) -> None:
    disk = LocalDisk()

    async def sync() -> None:
        await disk.open(str(tmp_path / "f"), create=True).sync_off_loop()

    for _ in range(3):
        asyncio.run(sync())


def synced(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.append((data,))
    file.sync()
    disk.sync_dir("/")


def survivors(make, seeds: int = 60) -> set[bytes | None]:
    """What may be left of /f after a power loss."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        disk = SimDisk()
        make(disk)
        disk.crash("power", Random(seed))
        found.add(disk.read("/f") if disk.exists("/f") else None)
    return found


def test_synced_bytes_survive_a_power_loss() -> None:
    assert survivors(lambda disk: synced(disk, "/f", b"abc")) == {b"abc"}


def test_end_of_a_process_loses_nothing() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.append((b"abc",))
    disk.crash("process", Random(0))
    assert disk.read("/f") == b"abc"
    with pytest.raises(OSError, match="closed"):
        file.append((b"d",))


def test_unsynced_writes_are_torn_anywhere() -> None:
    def make(disk: SimDisk) -> None:
        synced(disk, "/f", b"abc")
        file = disk.open("/f")
        file.append((b"12",))
        file.append((b"3",))

    assert survivors(make) >= {b"abc", b"abc1", b"abc12", b"abc123"}


def test_unsynced_sectors_reach_the_medium_in_any_order() -> None:
    def make(disk: SimDisk) -> None:
        synced(disk, "/f", b"")
        disk.open("/f").append((b"1" * 512 + b"2" * 512,))

    assert bytes(512) + b"2" * 512 in survivors(make)


def test_unsynced_names_are_lost() -> None:
    def create(disk: SimDisk) -> None:
        file = disk.open("/f", create=True)
        file.append((b"abc",))
        file.sync()

    assert survivors(create) == {None, b"abc"}

    def remove(disk: SimDisk) -> None:
        synced(disk, "/f", b"abc")
        disk.remove("/f")

    assert survivors(remove) == {None, b"abc"}


def test_rename_may_survive_without_the_content() -> None:
    def make(disk: SimDisk) -> None:
        synced(disk, "/f", b"old")
        disk.write_atomic("/f", b"new", sync=False)

    assert survivors(make) >= {b"old", b"new", b""}
    assert survivors(lambda disk: (synced(disk, "/f", b"old"), disk.write_atomic("/f", b"new"))) == {b"new"}


def test_faults_on_demand() -> None:
    disk = SimDisk(capacity=5)
    file = disk.open("/f.log", create=True)
    disk.fail("append", ".log", error=errno.EIO)
    with pytest.raises(OSError, match="append") as failure:
        file.append((b"abc",))
    assert failure.value.errno == errno.EIO
    disk.shorten_append(".log", 2)
    assert file.append((b"abc",)) == 2
    assert file.append((b"defg",)) == 3, "the disk is full"
    with pytest.raises(OSError, match="/f") as failure:
        file.append((b"x",))
    assert failure.value.errno == errno.ENOSPC


def test_machine_stops_in_the_middle_of_a_write() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    disk.stop_after(2)
    with pytest.raises(MachineStopped):
        file.append((b"abc",))
    with pytest.raises(MachineStopped):
        disk.list_dir("/")
    disk.crash("process", Random(0))
    assert disk.read("/f") == b"ab"


def test_identity_that_an_earlier_release_noted_is_recognised(tmp_path: Path) -> None:
    present = LocalDisk().identity(str(tmp_path))
    former, _, generation = present.rpartition(".")
    assert generation
    assert is_identity(present, present)
    assert is_identity(former, present)
    assert not is_identity("", present)
    assert not is_identity(f"{former}.{int(generation, 16) + 1:x}", present)


def test_directory_made_in_the_place_of_another_has_another_identity(tmp_path: Path) -> None:
    """B105: file systems give the number of a removed directory to the next one."""
    identities = set()
    for _ in range(4):
        (tmp_path / "data").mkdir()
        identities.add(LocalDisk().identity(str(tmp_path / "data")))
        (tmp_path / "data").rmdir()
    tells_no_generations = all(identity.endswith(".0") for identity in identities)  # Overlay file systems, say.
    assert len(identities) == 4 or tells_no_generations
