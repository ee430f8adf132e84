"""A history as lines to read: virtual time, node, event; with requests and the brokers' own log lines among them."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.simulation.journal import Entry
from tests.simulation.virtual_loop import process_name

QUIET_REQUESTS: Final = frozenset({"FETCH", "METADATA", "API_VERSIONS", "FIND_COORDINATOR", "UPDATE_METADATA"})
"""Requests that say little; shown only if everything is."""
_QUIET_EVENTS: Final = frozenset({"create znode", "delete znode"})


class ReadableTrace:
    """The last lines of a history."""

    def __init__(self, *, most_lines: int, everything: bool = False) -> None:
        self._lines: deque[str] = deque(maxlen=most_lines)
        self._everything = everything
        self._seen = 0
        self._at = 0.0
        """Virtual seconds of the last event."""

    def add(self, entry: Entry) -> None:
        """Add an event, if it is wanted."""
        self._at = entry.at
        if self._everything or not _is_quiet(entry):
            self._add(entry.node, f"{entry.kind} {entry.detail}".rstrip())

    def _add(self, node: str, text: str) -> None:
        self._seen += 1
        self._lines.append(f"{self._at:11.6f}  {node:<20}  {text}")

    def lines(self) -> list[str]:
        """Return them, with a line in front that says how many earlier ones were left out."""
        left_out = self._seen - len(self._lines)
        head = [f"({left_out} earlier lines are left out)"] if left_out else []
        return [*head, *self._lines]

    @contextmanager
    def with_log_lines(self, level: int) -> Iterator[None]:
        """Add what brokers log inside, from a level on, at the time of the event before it."""
        handler = _ToTrace(lambda text: self._add(process_name(), text))
        root = logging.getLogger()
        former = root.level, root.handlers
        root.handlers = [handler]
        root.setLevel(level)
        try:
            yield
        finally:
            root.setLevel(former[0])
            root.handlers = former[1]


def _is_quiet(entry: Entry) -> bool:
    if entry.kind == "request":
        return entry.detail.partition(" ")[0] in QUIET_REQUESTS
    return entry.kind in _QUIET_EVENTS


class _ToTrace(logging.Handler):
    def __init__(self, add: Callable[[str], None]) -> None:
        super().__init__()
        self._add = add

    def emit(self, record: logging.LogRecord) -> None:
        self._add(f"log {record.levelname.lower()}: {record.getMessage()}"[:300])
