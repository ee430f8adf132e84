"""A disk in memory that knows which of its bytes would survive.

What processes see (*volatile*) and what is on the medium (*durable*) are kept apart, for the bytes of each file and for
the names in each directory. ``crash("process")`` loses nothing that was written; ``crash("power")`` goes back to what
was synced, plus whatever part of the rest ``rng`` lets survive:

* of a file's unsynced writes either any prefix with the next write torn anywhere, or any mixture of old and new
  512-byte sectors (writes between two syncs reach the medium in any order);
* of a directory's unsynced creates, renames and removes any prefix, whether or not the content of a file that is
  renamed was synced;
* so a file whose name was synced and whose content was not is there, with anything or nothing in it.

``sync`` of a file covers its content, not its name; ``sync_dir`` covers the names in one directory only. (ext4 is
kinder in both; a broker must not rely on it.)

Faults are requested in advance: ``fail`` makes matching calls raise ``OSError``, ``shorten_append`` makes the next
append to a file short, ``capacity`` makes the disk full, ``stop_after`` halts the machine after so many more written
bytes and directory changes (``MachineStopped`` from then on, until ``crash``), ``cold`` makes ``try_read_at`` refuse.
Off-loop calls run inline, after awaiting ``delay`` if there is one.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from oncelog.broker.storage.disk import AlreadyLocked, Directories
from oncelog.protocol.schema import Buffer
from tests.simulation.buggify import Swarm, current_swarm
from tests.simulation.journal import Journal, current_journal

SECTOR: Final = 512
_LARGE: Final = 1 << 40

CrashKind = Literal["process", "power"]


class MachineStopped(BaseException):
    """The machine is off: nothing more happens until it is started again. No handler may swallow this."""


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int


_Change = _Write | _Truncate


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, _Truncate):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data


class _Content:
    """A file's bytes, whatever its names."""

    __slots__ = ("changes", "durable", "volatile")

    def __init__(self) -> None:
        self.volatile = bytearray()
        self.durable = bytearray()
        self.changes: list[_Change] = []

    def change(self, change: _Change) -> None:
        _apply(self.volatile, change)
        self.changes.append(change)

    def sync(self, count: int) -> None:
        """Make the first ``count`` changes durable."""
        for change in self.changes[:count]:
            _apply(self.durable, change)
        del self.changes[:count]

    def lose_power(self, rng: random.Random) -> None:
        survivor = self._torn(rng) if rng.random() < 0.7 else self._sector_soup(rng)
        self.durable = survivor
        self.volatile = bytearray(survivor)
        self.changes.clear()

    def _torn(self, rng: random.Random) -> bytearray:
        survivor = bytearray(self.durable)
        kept = rng.randint(0, len(self.changes))
        for change in self.changes[:kept]:
            _apply(survivor, change)
        if kept < len(self.changes):
            torn = self.changes[kept]
            if isinstance(torn, _Write):
                _apply(survivor, _Write(torn.offset, torn.data[: rng.randint(0, len(torn.data))]))
        return survivor

    def _sector_soup(self, rng: random.Random) -> bytearray:
        old, new = self.durable, self.volatile
        size = rng.choice((len(old), len(new), rng.randint(min(len(old), len(new)), max(len(old), len(new)))))
        survivor = bytearray()
        for start in range(0, size, SECTOR):
            source = rng.choice((old, new))
            sector = source[start : start + SECTOR]
            survivor += sector + bytes(SECTOR - len(sector))
        return survivor[:size]


class _Directory:
    """Names, and what they stand for."""

    __slots__ = ("changes", "durable", "volatile")

    def __init__(self) -> None:
        self.volatile: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.changes: list[dict[str, _Node | None]] = []

    def change(self, names: dict[str, "_Node | None"]) -> None:
        """One atomic change: each name gets a new meaning or (None) vanishes."""
        self._apply(self.volatile, names)
        self.changes.append(names)

    @staticmethod
    def _apply(entries: dict[str, "_Node"], names: dict[str, "_Node | None"]) -> None:
        for name, node in names.items():
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node

    def sync(self, count: int) -> None:
        for names in self.changes[:count]:
            self._apply(self.durable, names)
        del self.changes[:count]

    def lose_power(self, rng: random.Random) -> None:
        self.sync(rng.randint(0, len(self.changes)))
        self.changes.clear()
        self.volatile = dict(self.durable)
        for name in sorted(self.volatile):
            self.volatile[name].lose_power(rng)


_Node = _Content | _Directory


@dataclass(slots=True)
class _Fault:
    operation: str
    path_ending: str
    error: int
    times: int


class SimFile:
    """A ``File`` of a ``SimDisk``. Handles of a process that crashed are dead."""

    __slots__ = ("_content", "_disk", "_generation", "_path")

    def __init__(self, disk: "SimDisk", path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._generation = disk.generation

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._enter("append")
        data = b"".join(buffers)
        return self._write(len(self._content.volatile), data)

    def write_at(self, data: Buffer, offset: int) -> int:
        self._enter("append")
        return self._write(offset, bytes(data))

    def read_at(self, size: int, offset: int) -> bytes:
        self._enter("read")
        return bytes(self._content.volatile[offset : offset + size])

    def try_read_at(self, size: int, offset: int) -> Buffer | None:
        self._enter("read")
        is_cold = self._disk.cold() or self._disk.swarm.strikes("cold read")
        return None if is_cold else bytearray(self._content.volatile[offset : offset + size])

    async def read_at_off_loop(self, size: int, offset: int) -> bytes:
        generation = self._generation
        self._check_same(generation)
        await self._disk.off_loop(("slow read", 0.2))
        self._disk.enter("read", self._path)
        self._check_same(generation)
        return bytes(self._content.volatile[offset : offset + size])

    def truncate(self, size: int) -> None:
        self._enter("truncate")
        self._content.change(_Truncate(size))

    def size(self) -> int:
        self._enter("size")
        return len(self._content.volatile)

    def sync(self) -> None:
        self._enter("sync")
        self._content.sync(len(self._content.changes))

    async def sync_off_loop(self) -> None:
        self._enter("sync")
        covered, generation = len(self._content.changes), self._disk.generation
        await self._disk.off_loop(("slow sync", 0.3), ("very slow sync", 5.0))
        self._disk.enter("sync end", self._path)
        if generation == self._disk.generation:  # The power may have gone meanwhile.
            self._content.sync(min(covered, len(self._content.changes)))

    def dup(self) -> "SimFile":
        return copy(self)

    def close(self) -> None:
        self._generation = -1

    def _enter(self, operation: str) -> None:
        self._check_same(self._generation)
        self._disk.enter(operation, self._path)

    def _check_same(self, generation: int) -> None:
        if generation != self._disk.generation:
            raise OSError(errno.EBADF, f"{self._path} is closed")

    def _write(self, offset: int, data: bytes) -> int:
        present = max(0, len(self._content.volatile) - offset)
        data = data[:present] + self._disk.admit(self._path, data[present:])
        stops = self._disk.spend(len(data))
        self._content.change(_Write(offset, data[: len(data) - stops]))
        if stops:
            raise MachineStopped
        return len(data)


class _SimLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


@dataclass(slots=True)
class SimDisk:
    """A ``Disk`` in memory; see the module for what it can do to its user."""

    capacity: int | None = None
    """Bytes that fit on the disk; None for no end."""
    volume_bytes: int | None = None
    """What the disk says of its size; None for its capacity."""
    delay: Callable[[], Awaitable[None]] | None = None
    """Awaited by every off-loop call before it acts."""
    cold: Callable[[], bool] = lambda: False
    """Returns whether a ``try_read_at`` must refuse; called by each."""
    generation: int = 0
    """How many crashes there were."""
    locks: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    """How often each operation was called: what a test counts syncs with."""
    power_losses: int = 0
    on_stop: Callable[[], None] = lambda: None
    """Called when the machine stops: whatever is on its way out of it must not leave it."""
    name: str = "disk"
    """What the journal calls it."""
    journal: Journal = field(default_factory=current_journal)
    swarm: Swarm = field(default_factory=current_swarm)
    _root: _Directory = field(default_factory=_Directory)
    _faults: list[_Fault] = field(default_factory=list)
    _shortened: dict[str, int] = field(default_factory=dict)
    _budget: int | None = None
    _stopped: bool = False

    # Faults

    def fail(self, operation: str, path_ending: str = "", *, error: int = errno.EIO, times: int = 1) -> None:
        """Make the next ``times`` calls of an operation on paths that end so raise OSError.

        Operations: open, append, read, truncate, size, sync, rename, remove, sync_dir, list_dir, make_dirs.
        """
        self.journal.note(self.name, f"failing {operation}", f"of *{path_ending}, {times} times")
        self._faults.append(_Fault(operation, path_ending, error, times))

    def shorten_append(self, path_ending: str, taken: int) -> None:
        """Make the next append to a path that ends so take only the first ``taken`` bytes."""
        self._shortened[path_ending] = taken
        self.journal.note(self.name, "short write", f"of *{path_ending}, {taken} bytes")

    def fill(self, leave: int = 0) -> None:
        """Make the disk full but for so many bytes, until ``make_room``."""
        self.journal.note(self.name, "full disk", f"{leave} bytes left")
        self.capacity = self._used(self._root) + leave
        self.volume_bytes = _LARGE

    def make_room(self) -> None:
        """The disk is not full any more, and calls that were to fail succeed."""
        if self.capacity is not None:
            self.journal.note(self.name, "room on disk")
        self.capacity = self.volume_bytes = None
        self._faults.clear()

    def stop_after(self, units: int) -> None:
        """Stop the machine after so many more written bytes and directory changes (one unit each)."""
        self._budget = units
        self.journal.note(self.name, "machine stops", f"after {units} units")

    def crash(self, kind: CrashKind, rng: random.Random) -> None:
        """End every process that uses the disk, and start again from what survives."""
        self.generation += 1
        self.locks.clear()
        self._faults.clear()
        self._shortened.clear()
        self._budget = None
        self._stopped = False
        if kind == "power":
            self.journal.note(self.name, "power loss")
            self.power_losses += 1
            self._root.lose_power(rng)

    # Disk

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.enter("open", path)
        parent, name = self._parent(path)
        node = parent.volatile.get(name)
        if node is None and create:
            node = _Content()
            self._change_names(parent, {name: node})
        if not isinstance(node, _Content):
            raise self._missing(path) if node is None else IsADirectoryError(errno.EISDIR, path)
        return SimFile(self, path, node)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(file.size(), 0)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = self.open(f"{path}.tmp", create=True)
        try:
            temporary.truncate(0)
            written = temporary.append((data,))
            if written < len(data):
                raise OSError(errno.ENOSPC, path)
            if sync:
                temporary.sync()
        except OSError:
            self.remove(f"{path}.tmp")
            raise
        self.rename(f"{path}.tmp", path)
        if sync:
            self.sync_dir(path.rpartition("/")[0])

    async def write_atomic_off_loop(self, path: str, data: Buffer) -> None:
        copy = bytes(data)
        await self.off_loop()
        self.write_atomic(path, copy)

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", source)
        source_parent, source_name = self._parent(source)
        target_parent, target_name = self._parent(target)
        assert source_parent is target_parent, "a rename between directories is not atomic on this disk"
        node = source_parent.volatile.get(source_name)
        if node is None:
            raise self._missing(source)
        self._change_names(source_parent, {source_name: None, target_name: node})

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        parent, name = self._parent(path)
        if not isinstance(parent.volatile.get(name), _Content):
            raise self._missing(path)
        self._change_names(parent, {name: None})

    async def remove_off_loop(self, path: str) -> None:
        await self.off_loop()
        self.remove(path)

    def remove_tree(self, path: str) -> None:
        self.enter("remove", path)
        try:
            parent, name = self._parent(path)
        except FileNotFoundError:
            return
        node = parent.volatile.get(name)
        if isinstance(node, _Directory):
            for inner in sorted(node.volatile):
                if isinstance(node.volatile[inner], _Directory):
                    self.remove_tree(f"{path}/{inner}")
                else:
                    self._change_names(node, {inner: None})
        if node is not None:
            self._change_names(parent, {name: None})

    async def remove_tree_off_loop(self, path: str) -> None:
        await self.off_loop()
        self.remove_tree(path)

    def make_dirs(self, path: str) -> None:
        self.enter("make_dirs", path)
        directory = self._root
        for name in self._names(path):
            node = directory.volatile.get(name)
            if node is None:
                node = _Directory()
                self._change_names(directory, {name: node})
            if not isinstance(node, _Directory):
                raise FileExistsError(errno.EEXIST, path)
            directory = node

    async def make_dirs_off_loop(self, directories: Directories) -> None:
        for directory, files in directories.items():
            await self.off_loop()
            self.make_dirs(directory)
            for name, data in files.items():
                path = f"{directory}/{name}"
                if self._find(path) is None and self.open(path, create=True).append((data,)) < len(data):
                    self.remove(path)
                    raise OSError(errno.ENOSPC, path)

    def list_dir(self, path: str) -> list[str]:
        self.enter("list_dir", path)
        return sorted(self._directory(path).volatile)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def file_size(self, path: str) -> int:
        node = self._find(path)
        if not isinstance(node, _Content):
            raise self._missing(path)
        return len(node.volatile)

    def sync_dir(self, path: str) -> None:
        self.enter("sync_dir", path)
        directory = self._directory(path)
        directory.sync(len(directory.changes))

    async def sync_dir_off_loop(self, path: str) -> None:
        self.enter("sync_dir", path)
        directory = self._directory(path)
        covered, generation = len(directory.changes), self.generation
        await self.off_loop()
        if generation == self.generation:
            directory.sync(min(covered, len(directory.changes)))

    def lock(self, path: str) -> _SimLock:
        if path in self.locks:
            raise AlreadyLocked(path)
        self.open(path, create=True)
        self.locks.add(path)
        return _SimLock(self, path)

    def identity(self, path: str) -> str:
        """Another one after each loss of power; no simulated broker copies its directory."""
        return f"{self.power_losses} {path}"

    def usage(self, path: str) -> tuple[int, int]:
        total = _LARGE if self.capacity is None else self.volume_bytes or self.capacity
        return total, (total if self.capacity is None else self.capacity) - self._used(self._root)

    # What files ask

    async def off_loop(self, *points: tuple[str, float]) -> None:
        """Wait for as long as a call off the loop takes; ``points`` may make it longer."""
        if self.delay is not None:
            await self.delay()
        seconds = self.swarm.delay(("slow disk", 0.05), *points)
        if seconds:
            await asyncio.sleep(seconds)

    def enter(self, operation: str, path: str) -> None:
        if self._stopped:
            raise MachineStopped
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if self.journal.digest is not None:
            self.journal.digest.update(f"{self.name} {operation} {path}\n".encode())
        for fault in self._faults:
            if fault.operation == operation and path.endswith(fault.path_ending) and fault.times > 0:
                fault.times -= 1
                self.journal.note(self.name, f"failed {operation}", path)
                raise OSError(fault.error, f"{operation} {path}")

    def admit(self, path: str, data: bytes) -> bytes:
        """The part of an append that is taken: less on a full disk, or if a fault requests it."""
        for ending in [ending for ending in self._shortened if path.endswith(ending)]:
            data = data[: self._shortened.pop(ending)]
            self.journal.note(self.name, "shortened write", path)
        if self.capacity is None or not data:
            return data
        room = max(0, self.capacity - self._used(self._root))
        if room < len(data):
            self.journal.note(self.name, "no space", path)
        if room == 0:
            raise OSError(errno.ENOSPC, path)
        return data[:room]

    def spend(self, units: int) -> int:
        """How many of these units come after the machine's end."""
        if self._budget is None:
            return 0
        missing = max(0, units - self._budget)
        self._budget = max(0, self._budget - units)
        if missing:
            self.stop()
        return missing

    def stop(self) -> None:
        """Stop the machine now."""
        self._stopped = True
        self.on_stop()

    # Names

    def _change_names(self, directory: _Directory, names: dict[str, _Node | None]) -> None:
        if self.spend(1):
            raise MachineStopped
        directory.change(names)

    @staticmethod
    @lru_cache(maxsize=4096)
    def _names(path: str) -> tuple[str, ...]:
        return tuple(name for name in path.split("/") if name)

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in self._names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.volatile.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise self._missing(path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    @staticmethod
    def _missing(path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, path)

    def _used(self, directory: _Directory) -> int:
        return sum(
            len(node.volatile) if isinstance(node, _Content) else self._used(node)
            for node in directory.volatile.values()
        )
