"""The broker's log: one line for each event, whatever its arguments hold, and no flood of one client's lines.

Much of what is logged comes from clients: group ids, client ids, reasons, addresses, and errors that quote them. So
``LineFormatter`` escapes control characters (a line break cannot begin a line that looks like another event, ESC cannot
drive a terminal) and cuts a message that is too long. A traceback has lines of its own; each is escaped and indented.

``LogHandler`` also limits how often one client causes the same line: lines of a client are those with a ``LogPeer``
among their arguments. What is suppressed is counted, and one line says how many. Lines of DEBUG are never suppressed.
"""

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import IO, Final, NamedTuple, Protocol, runtime_checkable

LONGEST_MESSAGE: Final = 2_000
"""Characters of a message."""
LONGEST_TRACEBACK: Final = 20_000
"""Characters of a traceback."""
BURST: Final = 10
"""Equal lines of one client in one window that are written."""
WINDOW_SECONDS: Final = 10.0
MOST_WINDOWS: Final = 1_000

_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, line separators, marks that change the direction of text, and lone surrogates."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@runtime_checkable
class LogPeer(Protocol):
    """An argument of a log line that names a client."""

    @property
    def log_peer(self) -> str:
        """The address by which lines of this client are counted: without its port."""


def escaped(text: str, longest: int) -> str:
    """Return ``text`` as one printable line of about ``longest`` characters at most."""
    cut = text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
    return _UNPRINTABLE.sub(_escape, cut)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class LineFormatter(logging.Formatter):
    """Formats an event as one line, and its traceback as indented lines below it."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message, LONGEST_MESSAGE)
        return super().formatMessage(record)

    def formatException(self, ei: "logging._SysExcInfoType | tuple[None, None, None]") -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


def _indented(text: str) -> str:
    if len(text) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n… ({len(text)} characters)\n{text[-half:]}"
    return "\n".join(f"  {escaped(line, LONGEST_MESSAGE)}" for line in text.split("\n"))


class LineKey(NamedTuple):
    """What makes two lines of a client equal: everything but their arguments."""

    name: str
    level: int
    template: str
    peer: str


@dataclass(slots=True)
class _Window:
    ends_at: float
    written: int = 0
    suppressed: int = 0
    last: logging.LogRecord | None = None
    """The last line that was suppressed."""


class RepeatedLines:
    """Counts equal lines of each client. Pure: the time is an argument, in seconds.

    Windows are kept in the order in which they end, and their number is bounded.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[LineKey, _Window] = OrderedDict()

    def admit(self, key: LineKey, record: logging.LogRecord, now: float) -> bool:
        """Return whether the line is written. Take what ``ended`` returns first."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now + WINDOW_SECONDS)
        if window.written < BURST:
            window.written += 1
            return True
        window.suppressed += 1
        window.last = record
        return False

    def ended(self, now: float) -> list[tuple[LineKey, int, logging.LogRecord]]:
        """Forget the windows that have ended, and the oldest of too many.

        Returns, where lines were suppressed, how many, and the last of them.
        """
        suppressed = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if window.ends_at > now and len(self._windows) < MOST_WINDOWS:
                break
            del self._windows[key]
            if window.last is not None:
                suppressed.append((key, window.suppressed, window.last))
        return suppressed


class LogHandler(logging.StreamHandler[IO[str]]):
    """Writes the log to a stream."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self.setFormatter(LineFormatter())
        self._repeated = RepeatedLines()

    def emit(self, record: logging.LogRecord) -> None:
        self._summarise(record.created)
        key = key_of(record)
        if key is None or self._repeated.admit(key, record, record.created):
            super().emit(record)

    def close(self) -> None:
        self._summarise(float("inf"))
        super().close()

    def _summarise(self, now: float) -> None:
        for key, count, last in self._repeated.ended(now):
            message = "%d more lines like this of %s were suppressed within %d s; the last: %s"
            arguments = (count, key.peer, WINDOW_SECONDS, last.getMessage())
            super().emit(logging.LogRecord(key.name, key.level, "", 0, message, arguments, None))


def key_of(record: logging.LogRecord) -> LineKey | None:
    """Return by what a line counts as repeated; None if it may be repeated without limit."""
    if record.levelno < logging.INFO or not isinstance(record.args, tuple):
        return None
    peer = next((argument.log_peer for argument in record.args if isinstance(argument, LogPeer)), None)
    return None if peer is None else LineKey(record.name, record.levelno, str(record.msg), peer)
