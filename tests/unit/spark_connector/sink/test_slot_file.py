"""Files in which slots outlive their process: one process has each, and a doubtful one gets another name."""

import os
import signal
from pathlib import Path
from random import Random

import pytest

from oncelog.spark_connector.sink import slot_file
from oncelog.spark_connector.sink.slot_file import SlotFile, claim_slot_file


def claim(directory: Path, seed: int, cluster: str = "c") -> SlotFile:
    file = claim_slot_file(cluster, Random(seed), directory / "slots")
    assert file is not None
    return file


def test_claims_of_several_processes_have_different_names(tmp_path: Path) -> None:
    first, second, elsewhere = claim(tmp_path, 1), claim(tmp_path, 2), claim(tmp_path, 3, "another")
    assert len({first.process, second.process, elsewhere.process}) == 3


def test_name_of_an_ended_process_is_used_again_with_its_state(tmp_path: Path) -> None:
    first = claim(tmp_path, 1)
    first.keep("a long text that is replaced")
    first.keep("what is known")
    first.release()
    again = claim(tmp_path, 2)
    assert (again.process, again.kept) == (first.process, "what is known")


def test_name_of_a_killed_process_is_free(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        file = claim(tmp_path, 1)
        file.keep("known")
        os.write(writing, file.process.encode())
        signal.pause()
    name = os.read(reading, 16).decode()
    beside = claim(tmp_path, 2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert beside.process != name
    after = claim(tmp_path, 3)
    assert (after.process, after.kept) == (name, "known")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"machine": "another", "process": "p", "slots": ""}'])
def test_file_that_cannot_be_read_gets_a_new_name(tmp_path: Path, content: bytes) -> None:
    """Torn by a crash, or written before the machine was started again."""
    first = claim(tmp_path, 1)
    first.keep("known")
    first.release()
    (path,) = (tmp_path / "slots").iterdir()
    path.write_bytes(content)
    again = claim(tmp_path, 2)
    assert again.process != first.process
    assert again.kept == ""


def test_name_of_a_deleted_file_is_not_used_again(tmp_path: Path) -> None:
    """Programs that clean directories of temporary files do not ask who is at work."""
    first = claim(tmp_path, 1)
    (path,) = (tmp_path / "slots").iterdir()
    path.unlink()
    assert claim(tmp_path, 2).process != first.process


def test_name_that_cannot_be_kept_is_not_used_again(tmp_path: Path) -> None:
    first = claim(tmp_path, 1)
    os.close(first._descriptor)
    first.keep("known")
    assert not list((tmp_path / "slots").iterdir())


def test_directory_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots").chmod(0o777)
    assert claim_slot_file("c", Random(1), tmp_path / "slots") is None


def test_machine_without_a_boot_id_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_file, "_BOOT_ID", tmp_path / "absent")
    assert claim_slot_file("c", Random(1), tmp_path / "slots") is None
