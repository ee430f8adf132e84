"""Whose session a broker may end: that of an earlier process of its own data directory, on the same boot."""

import asyncio
import random
import shutil
from pathlib import Path

from oncelog.broker.metadata.session_file import SessionFile
from oncelog.broker.storage.disk import LocalDisk
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials
from tests.simulation.sim_disk import SimDisk
from tests.simulation.sim_zookeeper import SimZooKeeper
from tests.simulation.virtual_loop import VirtualLoop

CREDENTIALS = SessionCredentials(0x1000123, bytes(range(16)))


def file_in(directory: Path) -> SessionFile:
    return SessionFile(LocalDisk(), str(directory))


def written(directory: Path) -> Path:
    directory.mkdir()
    file_in(directory).write(CREDENTIALS)
    return directory


def test_session_file_of_the_same_directory_is_read(tmp_path: Path) -> None:
    assert file_in(written(tmp_path / "data")).read() == CREDENTIALS


def test_session_file_of_a_renamed_directory_is_read(tmp_path: Path) -> None:
    assert file_in(written(tmp_path / "data").rename(tmp_path / "other")).read() == CREDENTIALS


def test_session_file_of_a_copied_directory_is_not_read(tmp_path: Path) -> None:
    shutil.copytree(written(tmp_path / "data"), tmp_path / "copy")
    assert file_in(tmp_path / "copy").read() is None


def test_session_file_written_before_a_reboot_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "data") / "zookeeper-session"
    session, directory = path.read_text().splitlines()
    boot, _, inode = directory.partition(" ")
    path.write_text(f"{session}\n{boot[::-1]} {inode}\n")
    assert file_in(tmp_path / "data").read() is None


def test_session_file_of_an_earlier_release_is_left_to_expire(tmp_path: Path) -> None:
    path = written(tmp_path / "data") / "zookeeper-session"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert file_in(tmp_path / "data").read() is None


def test_session_that_finds_no_room_is_not_written_and_the_next_one_is() -> None:
    disk, loop = SimDisk(), VirtualLoop(random.Random(2))
    disk.make_dirs("/data")

    async def play() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store = ensemble.connect(session_timeout=1.0)
        disk.fill()
        SessionFile(disk, "/data").keep(store)
        assert not disk.exists("/data/zookeeper-session")
        disk.make_room()
        assert store.session is not None
        ensemble.expire(store.session.session_id)
        await asyncio.sleep(5.0)
        assert SessionFile(disk, "/data").read() == store.credentials

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def test_session_file_that_is_damaged_or_missing_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "data") / "zookeeper-session"
    path.write_bytes(b"\xff not hexadecimal\n")
    assert file_in(tmp_path / "data").read() is None
    path.unlink()
    assert file_in(tmp_path / "data").read() is None
