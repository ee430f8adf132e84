"""``WatchTable``: the watches of one kind, by path."""

from collections.abc import Iterable

from oncelog.coordinator.metadata_store.store import Watch


class WatchTable:
    """Watches that fire at most once. Adding the same one again for the same path changes nothing."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[str, dict[Watch, None]] = {}

    def __len__(self) -> int:
        """Return the number of watched paths."""
        return len(self._watches)

    def add(self, path: str, watch: Watch) -> None:
        """Add a watch of a path."""
        self._watches.setdefault(path, {})[watch] = None

    def discard(self, path: str, watch: Watch) -> None:
        """Remove a watch that has not fired."""
        of_path = self._watches.get(path)
        if of_path is not None:
            of_path.pop(watch, None)
            if not of_path:
                del self._watches[path]

    def pop(self, path: str) -> Iterable[Watch]:
        """Remove and return the watches of a path, to be called."""
        return self._watches.pop(path, ())

    def pop_all(self) -> list[Watch]:
        """Remove and return all watches, to be called."""
        watches = [watch for of_path in self._watches.values() for watch in of_path]
        self._watches.clear()
        return watches
