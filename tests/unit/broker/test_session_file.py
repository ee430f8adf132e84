"""Whose session a broker may end: that of an earlier process of its own data directory, on the same boot."""

import shutil
from pathlib import Path

from broker.session_file import SessionFile
from broker.storage.disk import LocalDisk
from coordinator.metadata_store.zookeeper_address import SessionCredentials

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


def test_session_file_that_is_damaged_or_missing_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "data") / "zookeeper-session"
    path.write_bytes(b"\xff not hexadecimal\n")
    assert file_in(tmp_path / "data").read() is None
    path.unlink()
    assert file_in(tmp_path / "data").read() is None
