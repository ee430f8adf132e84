"""What happens in one run of the simulation: counted by kind, digested, and passed on to a listener.

The journal of a run is ambient: ``keep(journal)`` makes it that of every loop, disk and ensemble that is made inside.
So a history needs no parameter for it, and a test that wants no journal pays for a counter only.
"""

import contextvars
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Entry(NamedTuple):
    """One event."""

    at: float
    """Virtual seconds since the loop was made."""
    node: str
    """The process that it happens to, or "network", "ensemble" and the like."""
    kind: str
    """A few words; events are counted by these."""
    detail: str


class Journal:
    """The events of one run."""

    def __init__(self, listener: Callable[[Entry], None] | None = None, *, digests: bool = False) -> None:
        """``digests``: whether to digest every byte that crosses the network, every disk call and every event."""
        self.counts: Counter[str] = Counter()
        self.now: Callable[[], float] = float
        self.seconds = 0.0
        """Virtual seconds of the loops that were closed."""
        self.listener = listener
        self.digest = hashlib.sha256() if digests else None

    def note(self, node: str, kind: str, detail: str = "") -> None:
        """Count an event, and tell the listener."""
        self.counts[kind] += 1
        if self.digest is not None:
            self.digest.update(f"{self.now():.9f} {node} {kind} {detail}\n".encode())
        if self.listener is not None:
            self.listener(Entry(self.now(), node, kind, detail))


_CURRENT: contextvars.ContextVar[Journal | None] = contextvars.ContextVar("journal", default=None)


def current_journal() -> Journal:
    """Return the journal that is kept, or one without a reader."""
    return _CURRENT.get() or Journal()


@contextmanager
def keep(journal: Journal) -> Iterator[Journal]:
    """Make it the journal of everything that is made inside."""
    token = _CURRENT.set(journal)
    try:
        yield journal
    finally:
        _CURRENT.reset(token)
