"""Files and directories that nothing refers to any more, and when they are to be removed."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk

AT_ONCE: Final = 0
"""Remove at the next opportunity."""


class _Due(NamedTuple):
    ms: int
    """When it may be removed, by the wall clock."""
    is_directory: bool


class Garbage:
    """What is to be removed in one data directory. After a restart it is found by its names."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: dict[str, _Due] = {}
        """By path."""

    def add_directory(self, path: str, due_ms: int) -> None:
        self._due[path] = _Due(due_ms, is_directory=True)

    def add_files(self, paths: Iterable[str], due_ms: int) -> None:
        for path in paths:
            self._due[path] = _Due(due_ms, is_directory=False)

    async def remove_due(self, now_ms: int) -> None:
        """Remove what is due, off the loop. A removal that fails is retried by the next call.

        Raise the first ``OSError`` after all have been tried.
        """
        errors: list[OSError] = []
        for path, is_directory in [(path, due.is_directory) for path, due in self._due.items() if due.ms <= now_ms]:
            try:
                if is_directory:
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
