"""``AuditLog``: the file with what clients were denied, what they have changed and who has logged in, in a chain.

A line is written at once, so it outlives the process, and synced within a second. While the file cannot be written,
lines wait in memory, up to a bound; what is lost beyond is counted by a line of its own. The broker goes on.

A file that is large is ended: it gets another name (``audit_files``), and the chain goes on in a new one, whose first
line has the last seal of the former. If that cannot be done the file goes on, and it is tried again.

A broker that starts carries on with the chain that it finds. A last line that a crash has torn is cut off, and the next
line says so. A file that is no audit log is refused.
"""

import asyncio
import logging
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.audit_chain import MIN_KEY_BYTES, PREVIOUS_SEAL, AuditChain, Head
from oncelog.broker.security.audit_files import ended_path, open_file
from oncelog.broker.storage.disk import AlreadyLocked, Disk, File
from oncelog.coordinator.ports import WallClock

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
HEAD_SECONDS: Final = 3_600.0
"""Between two lines of the broker's own log with the last seal."""
_MOST_WAITING: Final = 10_000
"""Lines that wait for a file that cannot be written."""
_MOST_WAITING_BYTES: Final = 8 << 20
_LINES_AT_ONCE: Final = 200
"""That are written in one turn of the loop, once the file can be written again."""
_LONGEST_VALUE: Final = 1_024
"""Characters of a text: clients choose names, and each character can become six bytes. A line must stay shorter than
what is read of the end of a file (``audit_files``)."""
_LONGER: Final = {"request": 8_300}
"""It was shortened where it was made (``audited_changes``), and is ASCII."""
_MEANWHILE: Final = {"written": "its lines wait in memory", "ended": "its file goes on although it is large"}
"""What is done while something cannot be done to the file."""
_FILE: Final = "oncelog.audit.file"
_KEY: Final = "oncelog.audit.key.file"


class AuditLog:
    """The audit log of one broker."""

    def __init__(
        self, disk: Disk, path: str, *, key_path: str | None, wall_clock: WallClock, max_bytes: int = 0
    ) -> None:
        """Open the file, or make it. Raises ``ConfigError`` if it cannot be carried on with.

        A file of ``max_bytes`` is ended; 0: none is.
        """
        key = _read_key(disk, key_path)
        self._disk = disk
        self._path = path
        self._max_bytes = max_bytes
        self._wall_clock = wall_clock
        try:
            self._lock = disk.lock(f"{path}.lock")
            found = open_file(disk, path, key)
        except AlreadyLocked:
            raise ConfigError(f"{_FILE}={path}: another broker writes it, each needs a file of its own") from None
        except OSError as error:
            raise ConfigError(f"{_FILE}={path} cannot be written: {error.strerror or error}") from None
        self._file: File = found.file
        self._size = found.size
        self._first = found.first
        """The number of the file's first line."""
        self._chain = AuditChain(key, found.head)
        self._waiting: deque[bytes] = deque()
        """Lines that the file has not taken."""
        self._waiting_bytes = 0
        self._lost = 0
        self._is_synced = True
        self._failures = dict.fromkeys(_MEANWHILE, "")
        """Why something cannot be done to the file at present."""
        if found.size == 0 and found.head.line:
            self._begin_file()
        self.add("start", **({"torn_bytes": found.torn_bytes} if found.torn_bytes else {}))

    @property
    def head(self) -> Head:
        """The last line, whether the file has taken it or not."""
        return self._chain.head

    def add(self, event: str, **fields: Any) -> None:
        """Write a line."""
        if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes >= _MOST_WAITING_BYTES:
            self._lost += 1
            return
        shown = {key: _shortened(value, _LONGER.get(key, _LONGEST_VALUE)) for key, value in fields.items()}
        line = self._chain.add({"time": _text_of(self._wall_clock()), "event": event, **shown})
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self._write()

    async def flush(self) -> None:
        """Write what waits, and sync the file; end it if it is large."""
        for _ in range(1 + _MOST_WAITING // _LINES_AT_ONCE):
            if not self._write():
                break
            await asyncio.sleep(0)
        self._note_lost()
        if not self._is_synced:
            self._is_synced = True
            await self._file.sync_off_loop()
        if 0 < self._max_bytes <= self._size and not self._waiting:
            await self._end_file()

    async def note_head(self) -> None:
        """Write the last seal to the broker's own log: what is removed from the end of the file is found by it."""
        logger.info("Audit log: line %d, seal %s", *self._chain.head)

    def close(self) -> None:
        """Write the last line, and leave the file."""
        for _ in range(1 + _MOST_WAITING // _LINES_AT_ONCE):
            if not self._write():
                break
        self._note_lost()
        self.add("stop")
        try:
            self._file.sync()
            self._file.close()
        except OSError as error:
            logger.error("The end of the audit log could not be synced: %s", error)
        logger.info("Audit log: line %d, seal %s", *self._chain.head)
        self._lock.release()

    def _note_lost(self) -> None:
        """Write how many lines had no room, once there is some."""
        if not self._waiting and self._lost:
            lost, self._lost = self._lost, 0
            self.add("lost", lines=lost)

    def _write(self) -> bool:
        """Write some of the lines that wait; returns whether more can be written at once."""
        for _ in range(min(len(self._waiting), _LINES_AT_ONCE)):
            line = self._waiting[0]
            try:
                written = self._file.append([line])
                if written < len(line):
                    self._file.truncate(self._size)
                    raise OSError("only a part of a line was written")
            except OSError as error:
                self._note("written", str(error))
                return False
            self._size += written
            self._is_synced = False
            del self._waiting[0]
            self._waiting_bytes -= len(line)
        self._note("written", "")
        return bool(self._waiting)

    async def _end_file(self) -> None:
        """Give the file another name, and go on in a new one. All lines are written."""
        former, ended = self._file, ended_path(self._path, self._first)
        try:
            self._file = self._replace_file(ended)
        except OSError as error:
            self._note("ended", str(error))
            return
        self._size, self._first = 0, self._chain.head.line + 1
        self._note("ended", "")
        logger.info("Audit log: %s is ended, line %d, seal %s", ended, *self._chain.head)
        self._begin_file()
        await former.sync_off_loop()
        former.close()
        await self._disk.sync_dir_off_loop(self._path.rpartition("/")[0] or ".")

    def _replace_file(self, ended: str) -> File:
        """Return a new file, after the present one was renamed. Raises ``OSError``; then nothing is renamed."""
        disk, path = self._disk, self._path
        if disk.exists(ended):
            raise OSError(f"{ended} exists")
        disk.rename(path, ended)
        try:
            return disk.open(path, create=True)
        except OSError:
            disk.rename(ended, path)
            raise

    def _begin_file(self) -> None:
        self.add("continued", **{PREVIOUS_SEAL: self._chain.head.seal})

    def _note(self, what: str, failure: str) -> None:
        """Log that something has failed, or is done again."""
        former, self._failures[what] = self._failures[what], failure
        if failure and not former:
            logger.error("The audit log cannot be %s, %s: %s", what, _MEANWHILE[what], failure)
        elif former and not failure:
            logger.info("The audit log can be %s again", what)


def _shortened(value: Any, longest: int) -> Any:
    if not isinstance(value, str) or len(value) <= longest:
        return value
    return f"{value[:longest]}… ({len(value)} characters)"


def _read_key(disk: Disk, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        key = disk.read(path).strip()
    except OSError as error:
        raise ConfigError(f"{_KEY}={path} cannot be read: {error.strerror or error}") from None
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(f"{_KEY}={path} has {len(key)} bytes: expected {MIN_KEY_BYTES} at least")
    return key


def _text_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
