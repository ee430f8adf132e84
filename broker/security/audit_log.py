"""``AuditLog``: the file with what clients were denied and what they have changed, each a line of a chain.

A line is written at once, so it outlives the process, and synced within a second. While the file cannot be written,
lines wait in memory, up to a bound; what is lost beyond is counted by a line of its own. The broker goes on.

A broker that starts carries on with the chain that it finds. A last line that a crash has torn is cut off, and the next
line says so. A file that is no audit log is refused.
"""

import logging
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.audit_chain import EMPTY, LINE_START, MIN_KEY_BYTES, AuditChain, Head, parse_line
from oncelog.broker.storage.disk import AlreadyLocked, Disk
from oncelog.coordinator.ports import WallClock

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
HEAD_SECONDS: Final = 3_600.0
"""Between two lines of the broker's own log with the last seal."""
_MOST_WAITING: Final = 10_000
"""Lines that wait for a file that cannot be written."""
_LONGEST_LINE: Final = 1 << 16
_FILE: Final = "oncelog.audit.file"
_KEY: Final = "oncelog.audit.key.file"


class AuditLog:
    """The audit log of one broker."""

    def __init__(self, disk: Disk, path: str, *, key_path: str | None, wall_clock: WallClock) -> None:
        """Open the file, or make it. Raises ``ConfigError`` if it cannot be carried on with."""
        key = _read_key(disk, key_path)
        self._wall_clock = wall_clock
        try:
            self._lock = disk.lock(f"{path}.lock")
            self._file = disk.open(path, create=True)
            self._size = self._file.size()
            head, torn = self._find_head()
        except AlreadyLocked:
            raise ConfigError(f"{_FILE}={path}: another broker writes it, each needs a file of its own") from None
        except OSError as error:
            raise ConfigError(f"{_FILE}={path} cannot be written: {error.strerror or error}") from None
        self._chain = AuditChain(key, head)
        self._waiting: deque[bytes] = deque()
        """Lines that the file has not taken."""
        self._lost = 0
        self._is_synced = True
        self._failure = ""
        self.add("start", **({"torn_bytes": torn} if torn else {}))

    @property
    def head(self) -> Head:
        """The last line, whether the file has taken it or not."""
        return self._chain.head

    def add(self, event: str, **fields: Any) -> None:
        """Write a line."""
        if len(self._waiting) >= _MOST_WAITING:
            self._lost += 1
            return
        self._waiting.append(self._chain.add({"time": _text_of(self._wall_clock()), "event": event, **fields}))
        self._write()

    async def flush(self) -> None:
        """Write what waits, and sync the file."""
        self._write()
        if not self._waiting and self._lost:
            lost, self._lost = self._lost, 0
            self.add("lost", lines=lost)
        if not self._is_synced:
            self._is_synced = True
            await self._file.sync_off_loop()

    async def note_head(self) -> None:
        """Write the last seal to the broker's own log: what is removed from the end of the file is found by it."""
        logger.info("Audit log: line %d, seal %s", *self._chain.head)

    def close(self) -> None:
        """Write the last line, and leave the file."""
        self.add("stop")
        try:
            self._file.sync()
            self._file.close()
        except OSError as error:
            logger.error("The end of the audit log could not be synced: %s", error)
        logger.info("Audit log: line %d, seal %s", *self._chain.head)
        self._lock.release()

    def _write(self) -> None:
        while self._waiting:
            line = self._waiting[0]
            try:
                written = self._file.append([line])
                if written < len(line):
                    self._file.truncate(self._size)
                    raise OSError("only a part of a line was written")
            except OSError as error:
                self._note_failure(str(error))
                return
            self._size += written
            self._is_synced = False
            del self._waiting[0]
        self._note_failure("")

    def _note_failure(self, failure: str) -> None:
        if failure and not self._failure:
            logger.error("The audit log cannot be written, its lines wait in memory: %s", failure)
        elif self._failure and not failure:
            logger.info("The audit log can be written again")
        self._failure = failure

    def _find_head(self) -> tuple[Head, int]:
        """Return the last line of the file, and how many bytes of a torn one were cut off behind it."""
        begin = max(0, self._size - 2 * _LONGEST_LINE)
        data = self._file.read_at(self._size - begin, begin)
        end = data.rfind(b"\n") + 1
        torn = data[end:]
        head = EMPTY
        if end:
            parsed = parse_line(data[data.rfind(b"\n", 0, end - 1) + 1 : end - 1])
            if parsed is None:
                raise _no_audit_log()
            head = parsed[1]
        if torn[: len(LINE_START)] != LINE_START[: len(torn)] or (begin and not end):
            raise _no_audit_log()
        if torn:
            self._size -= len(torn)
            self._file.truncate(self._size)
        return head, len(torn)


def _no_audit_log() -> ConfigError:
    return ConfigError(f"{_FILE} names a file whose last line is none of an audit log: move it away")


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
