"""Files and directories that nothing refers to any more, and when they are to be removed."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk

AT_ONCE: Final = 0
"""The delay of what may be removed at the next opportunity."""


class _Due(NamedTuple):
    since_ms: int
    """From when the delay counts, by the wall clock."""
    delay_ms: int
    is_directory: bool


class Garbage:
    """What is to be removed in one data directory. After a restart it is found by its names."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: dict[str, _Due] = {}
        """By path."""

    def add_directory(self, path: str, now_ms: int, delay_ms: int) -> None:
        self._due[path] = _Due(now_ms, delay_ms, is_directory=True)

    def add_files(self, paths: Iterable[str], now_ms: int, delay_ms: int) -> None:
        for path in paths:
            self._due[path] = _Due(now_ms, delay_ms, is_directory=False)

    async def remove_due(self, now_ms: int) -> None:
        """Remove what is due, off the loop. A removal that fails is retried by the next call.

        Raise the first ``OSError`` after all have been tried.
        """
        errors: list[OSError] = []
        for path in self._due_paths(now_ms):
            try:
                if self._due[path].is_directory:
                    await self._disk.remove_tree_off_loop(path)
                else:
                    await self._disk.remove_off_loop(path)
            except FileNotFoundError:
                pass  # Its directory was removed first.
            except OSError as error:
                errors.append(error)
                continue
            del self._due[path]
        if errors:
            raise errors[0]

    def _due_paths(self, now_ms: int) -> list[str]:
        """Return the paths whose delay is over. Where the clock was set back, the delay counts from now on."""
        for path, due in self._due.items():
            if now_ms < due.since_ms:
                self._due[path] = due._replace(since_ms=now_ms)
        return [path for path, due in self._due.items() if now_ms >= due.since_ms + due.delay_ms]
