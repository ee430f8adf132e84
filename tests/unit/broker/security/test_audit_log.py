"""The audit log as a file: carried on with, never holding up, and counting what it could not keep."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security import audit_log
from oncelog.broker.security.audit_log import AuditLog
from oncelog.broker.security.audit_verdict import Verification, verify
from oncelog.broker.storage.disk import LocalDisk, LocalFile

pytestmark = pytest.mark.real_loop


def opened(path: Path, key_path: Path | None = None, disk: Any = None, *, max_bytes: int = 0) -> AuditLog:
    return AuditLog(
        disk or LocalDisk(),
        str(path),
        key_path=None if key_path is None else str(key_path),
        wall_clock=lambda: 1_000,
        max_bytes=max_bytes,
    )


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_bytes().splitlines()]


async def test_broker_that_starts_again_carries_on_with_the_chain(tmp_path: Path) -> None:
    path, key = tmp_path / "audit", tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    for number in range(3):
        log = opened(path, key)
        log.add("change", number=number)
        await log.flush()
        log.close()
    verdict = verify(path.read_bytes().splitlines(), b"0123456789abcdef", log.head)
    assert not verdict.problems
    assert events(path) == ["start", "change", "stop"] * 3
    assert json.loads(path.read_bytes().splitlines()[0])["time"] == "1970-01-01T00:00:01.000Z"


async def test_line_with_the_longest_names_is_one_that_a_start_finds_again(tmp_path: Path) -> None:
    """A client chooses names of 32,767 characters, and JSON has six bytes for each control character."""
    path, name = tmp_path / "audit", "\x01" * 32_767
    log = opened(path)
    log.add("change", principal=name, host="::1", listener="PLAINTEXT", client_id=name, api=name, request='"' * 32_767)
    log.add("denied", principal=name, resource=name, client_id=name, count=1)
    head = log.head
    assert all(len(line) < 1 << 16 for line in path.read_bytes().splitlines())
    assert json.loads(path.read_bytes().splitlines()[-1])["resource"] == name[:1_024] + "… (32767 characters)"
    (tmp_path / "after a crash").write_bytes(path.read_bytes())
    again = opened(tmp_path / "after a crash")
    assert again.head.line == head.line + 1


async def test_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    log.add("change")
    assert events(tmp_path / "audit") == ["start", "change"]


async def test_line_that_a_crash_has_torn_is_cut_off_and_said(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    opened(path).close()
    with path.open("ab") as file:
        file.write(b'{"line":3,"ti')
    opened(path).close()
    assert not verify(path.read_bytes().splitlines(), None).problems
    assert json.loads(path.read_bytes().splitlines()[2])["torn_bytes"] == 13


@pytest.mark.parametrize("content", [b"no audit log\n", b"x" * 300_000, b"\n", b'{"line":1}\n'])
async def test_file_that_is_no_audit_log_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="move it away"):
        opened(path)
    assert path.read_bytes() == content


async def test_second_broker_on_the_same_file_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    with pytest.raises(ConfigError, match="another broker writes it"):
        opened(tmp_path / "audit")
    log.close()
    opened(tmp_path / "audit").close()


async def test_file_or_key_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        opened(tmp_path / "none" / "audit")
    with pytest.raises(ConfigError, match="cannot be read"):
        opened(tmp_path / "audit", tmp_path / "key")
    (tmp_path / "key").write_text("short")
    with pytest.raises(ConfigError, match="expected 16 at least"):
        opened(tmp_path / "audit", tmp_path / "key")


class FullFile(LocalFile):
    """A file without room, or with room for a part of a line, at times."""

    room = 1 << 30

    def append(self, buffers: Any) -> int:
        (data,) = buffers
        if not FullFile.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append([data[: FullFile.room]])


class FullDisk(LocalDisk):
    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return FullFile(path, create=create)


@pytest.mark.parametrize("room", [0, 10])
async def test_lines_wait_for_room_and_those_beyond_a_bound_are_counted(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit"
    monkeypatch.setattr(audit_log, "_MOST_WAITING", 5)
    log = opened(path, disk=FullDisk())
    monkeypatch.setattr(FullFile, "room", room)
    for _ in range(8):
        log.add("change")
    await log.flush()
    assert events(path) == ["start"]
    monkeypatch.setattr(FullFile, "room", 1 << 30)
    await log.flush()
    assert events(path) == ["start", *["change"] * 5, "lost"]
    assert json.loads(path.read_bytes().splitlines()[-1])["lines"] == 3
    log.close()
    assert not verify(path.read_bytes().splitlines(), None, log.head).problems


async def test_lines_that_wait_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit"
    monkeypatch.setattr(audit_log, "_MOST_WAITING_BYTES", 10_000)
    log = opened(path, disk=FullDisk())
    monkeypatch.setattr(FullFile, "room", 0)
    for _ in range(20):
        log.add("denied", resource="\x01" * 1_024)
    monkeypatch.setattr(FullFile, "room", 1 << 30)
    await log.flush()
    assert events(path) == ["start", "denied", "denied", "lost"]
    log.close()


async def test_broker_that_stops_writes_all_lines_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit"
    log = opened(path, disk=FullDisk())
    monkeypatch.setattr(audit_log, "_MOST_WAITING", 1_000)
    monkeypatch.setattr(FullFile, "room", 0)
    for _ in range(1_001):
        log.add("change")
    monkeypatch.setattr(FullFile, "room", 1 << 30)
    log.close()
    assert events(path) == ["start", *["change"] * 1_000, "lost", "stop"]
    assert not verify(path.read_bytes().splitlines(), None, log.head).problems


async def test_flush_tries_once_while_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, tries = opened(tmp_path / "audit", disk=FullDisk()), []
    monkeypatch.setattr(FullFile, "room", 0)
    for _ in range(1_000):
        log.add("change")
    monkeypatch.setattr(FullFile, "append", lambda file, buffers: tries.append(file) or 0)
    await log.flush()
    assert len(tries) == 1


# Several files


def files_of(path: Path) -> list[Path]:
    """The files of a log in their order, the one that is written last."""
    return [*sorted(path.parent.glob(f"{path.name}.0*")), path]


def problems_of(path: Path, log: AuditLog) -> list[str]:
    verification = Verification(None, expected=log.head)
    for file in files_of(path):
        verification.read(file.read_bytes().splitlines(keepends=True), file.name)
    return verification.end().problems


async def fill(log: AuditLog, rounds: int) -> None:
    """Write five lines and flush, some times."""
    for _ in range(rounds):
        for number in range(5):
            log.add("change", number=number)
        await log.flush()


async def test_large_file_is_ended_and_the_chain_goes_on_in_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = opened(path, max_bytes=600)
    await fill(log, 3)
    names = [file.name for file in files_of(path)]
    assert names == ["audit.0000000001", "audit.0000000007", "audit.0000000013", "audit"]
    assert [events(file) for file in files_of(path)] == [
        ["start", *["change"] * 5],
        ["continued", *["change"] * 5],
        ["continued", *["change"] * 5],
        ["continued"],
    ]
    assert problems_of(path, log) == []
    log.close()
    log = opened(path, max_bytes=600)
    await fill(log, 1)
    assert events(path) == ["continued"]
    assert problems_of(path, log) == []
    log.close()


async def test_log_without_a_size_has_one_file(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    await fill(log, 20)
    assert files_of(tmp_path / "audit") == [tmp_path / "audit"]
    log.close()


async def test_broker_that_crashed_between_two_files_carries_on_with_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = opened(path, max_bytes=600)
    await fill(log, 2)
    log.close()
    path.unlink()
    log = opened(path, max_bytes=600)
    assert events(path) == ["continued", "start"]
    assert problems_of(path, log) == []
    log.close()


class RefusingDisk(LocalDisk):
    """A disk that opens no new file, or renames none, at times."""

    refuses = ""

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        if RefusingDisk.refuses == "open" and create:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create)

    def rename(self, source: str, target: str) -> None:
        if RefusingDisk.refuses == "rename":
            raise OSError(errno.EACCES, "Permission denied")
        super().rename(source, target)


@pytest.mark.parametrize("refuses", ["open", "rename"])
async def test_file_that_cannot_be_ended_goes_on_until_it_can(
    tmp_path: Path, refuses: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    log = opened(path, disk=RefusingDisk(), max_bytes=600)
    monkeypatch.setattr(RefusingDisk, "refuses", refuses)
    await fill(log, 3)
    assert events(path) == ["start", *["change"] * 15]
    assert len([record for record in caplog.records if "cannot be ended" in record.message]) == 1
    monkeypatch.setattr(RefusingDisk, "refuses", "")
    await log.flush()
    assert [len(events(file)) for file in files_of(path)] == [16, 1]
    assert problems_of(path, log) == []
    log.close()


async def test_file_of_the_name_of_an_ended_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = opened(path, max_bytes=600)
    (tmp_path / "audit.0000000001").write_text("mine")
    await fill(log, 2)
    assert (tmp_path / "audit.0000000001").read_text() == "mine"
    assert len(events(path)) == 11
    log.close()
