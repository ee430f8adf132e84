"""The disk seam: every file of a broker is reached through a ``Disk`` and the ``File`` objects that it opens.

``LocalDisk`` is thin ``os`` calls. The simulator has another form of the same two protocols, which knows which bytes
would survive a power loss; so whatever makes bytes durable is explicit here: ``sync`` for a file's content,
``sync_dir`` for the names in a directory (creates, renames, removals), ``write_atomic`` for both at once.

Three kinds of calls, by how long they may take:

* plain calls are made on the event loop: appends and page-cache reads cost microseconds;
* ``try_read_at`` is a plain call that refuses (``None``) instead of waiting for the device;
* ``*_off_loop`` calls run in the loop's executor, those that sync a file in threads of their own. They hold the file
  open until they end, also when the file is closed or its waiter cancelled meanwhile.

Failures are ``OSError``, as the kernel gives them. ``append`` may write less than it was given; the caller decides.
A file has one writer: the data directory is locked.
"""

import asyncio
import errno
import fcntl
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Final, Protocol, TypeAlias

from aiofiles.os import wrap

from oncelog.broker.storage.directory_identity import identity_of
from oncelog.protocol.schema import Buffer

_REFUSED: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL})
"""Not in the page cache, or a file system that cannot tell."""

_SYNC_THREADS: Final = 16

OpenFile: TypeAlias = Callable[[str, int, int], int]
"""What ``os.open`` is: path, flags and mode to a descriptor."""
Directories: TypeAlias = Mapping[str, Mapping[str, bytes]]
"""By path, the contents of small files by name."""


class AlreadyLocked(Exception):
    """Another process, or another broker of this process, holds the lock. ``holder`` is its id, if that is known."""

    def __init__(self, path: str, holder: int | None = None) -> None:
        super().__init__(path)
        self.holder = holder


class File(Protocol):
    """One open file."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end. Return how many bytes were written, which may be fewer than given."""

    def write_at(self, data: Buffer, offset: int) -> int:
        """Overwrite in place. Return how many bytes were written."""

    def read_at(self, size: int, offset: int) -> bytes:
        """Read at most ``size`` bytes; fewer only at the end of the file."""

    def try_read_at(self, size: int, offset: int) -> Buffer | None:
        """Read the bytes that are in memory: all, or a first part of them; return None if none is."""

    async def read_at_off_loop(self, size: int, offset: int) -> bytes: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None: ...

    async def sync_off_loop(self) -> None: ...

    def dup(self) -> "File":
        """Return another handle of the open file, for a later sync: it is of use when this one has been closed."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """The file system as a broker sees it. Paths are strings; parents must exist."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. ``create`` makes an empty file when there is none."""

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replace a whole file: after a crash of the process it is the old one or the new one, never a mixture.

        ``sync`` makes that true after a power loss as well; without it the file may then hold anything.
        """

    async def write_atomic_off_loop(self, path: str, data: Buffer) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; FileNotFoundError when there is none."""

    async def remove_off_loop(self, path: str) -> None:
        """Remove a file, off the loop: to unlink a large file takes time. Raise as ``remove`` does."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is in it; nothing to do when it is not there."""

    async def remove_tree_off_loop(self, path: str) -> None: ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents unless they exist."""

    async def make_dirs_off_loop(self, directories: "Directories") -> None:
        """Make directories, and in each the files that it lacks. What is there stays as it is; nothing is synced.

        After an ``OSError`` some of them are there.
        """

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def sync_dir(self, path: str) -> None: ...

    async def sync_dir_off_loop(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock that ends with this process; raises ``AlreadyLocked``."""

    def identity(self, path: str) -> str:
        """Identify a directory while the machine runs; a copy has another identity, and so has all after a reboot.

        Compare with ``is_identity``.
        """

    def usage(self, path: str) -> tuple[int, int]:
        """Return total and usable bytes of the volume that holds ``path``."""


class _Descriptor:
    """A file descriptor that is closed when the last call that uses it has ended."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def _sync(descriptor: _Descriptor) -> None:
    os.fsync(descriptor.fd)


def _read_at(descriptor: _Descriptor, size: int, offset: int) -> bytes:
    data = os.pread(descriptor.fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := os.pread(descriptor.fd, missing, offset + size - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class _Ends:
    """The syncs that have ended, on their way from the threads to one event loop."""

    __slots__ = ("_ended", "_is_waking", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[tuple[asyncio.Future[None], OSError | None]] = deque()
        self._is_waking = False

    def add(self, end: asyncio.Future[None], error: OSError | None) -> None:
        """Report an end, in a thread."""
        self._ended.append((end, error))
        if not self._is_waking:  # At worst the loop is woken once more than needed: it resets this before it takes.
            self._is_waking = True
            self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_waking = False
        while self._ended:
            end, error = self._ended.popleft()
            if end.done():
                continue  # Its waiter was cancelled.
            if error is None:
                end.set_result(None)
            else:
                end.set_exception(error)


class _Syncs:
    """Syncs of files, in threads of their own: many at the same time, with few wake-ups of the loop.

    What several files wait for at the same time, a file system commits in one go. The loop's executor has fewer
    threads, and cold reads would wait there behind the syncs. Whatever ends there also wakes the loop, and takes the
    interpreter from it for a moment; here the syncs that end together wake it once.
    """

    __slots__ = ("_ends", "_threads")

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="fsync")
        self._ends: _Ends | None = None

    def start(self, descriptor: _Descriptor) -> asyncio.Future[None]:
        """Begin to sync a file, which stays open meanwhile. Return the end, or the ``OSError`` of the call."""
        loop = asyncio.get_running_loop()
        ends = self._ends
        if ends is None or ends.loop is not loop:
            ends = self._ends = _Ends(loop)
        end = loop.create_future()
        self._threads.submit(_report_sync, descriptor, end, ends)
        return end


def _report_sync(descriptor: _Descriptor, end: asyncio.Future[None], ends: _Ends) -> None:
    error = None
    try:
        _sync(descriptor)
    except OSError as failure:
        error = failure
    ends.add(end, error)


_read_at_off_loop = wrap(_read_at)


class LocalFile:
    """A ``File`` of the operating system."""

    __slots__ = ("_descriptor", "_fd", "_syncs")

    def __init__(
        self, path: str, *, create: bool, open_file: "OpenFile" = os.open, syncs: "_Syncs | None" = None
    ) -> None:
        """Open a file that shares the threads of ``syncs`` with others."""
        self._syncs = syncs or _Syncs()
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = open_file(path, flags, 0o644)
        self._descriptor: _Descriptor | None = _Descriptor(self._fd)
        os.lseek(self._fd, 0, os.SEEK_END)

    def append(self, buffers: Sequence[Buffer]) -> int:
        # The file's own position is always its end: other calls name their offset.
        if len(buffers) == 1:
            return os.write(self._fd, buffers[0])
        return os.writev(self._fd, buffers)

    def write_at(self, data: Buffer, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)

    def read_at(self, size: int, offset: int) -> bytes:
        return _read_at(self._open_descriptor(), size, offset)

    def try_read_at(self, size: int, offset: int) -> Buffer | None:
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _REFUSED:
                return None
            raise
        return buffer if count == size else memoryview(buffer)[:count]

    async def read_at_off_loop(self, size: int, offset: int) -> bytes:
        return await _read_at_off_loop(self._open_descriptor(), size, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        _sync(self._open_descriptor())

    async def sync_off_loop(self) -> None:
        await self._syncs.start(self._open_descriptor())

    def dup(self) -> "LocalFile":
        return copy(self)

    def close(self) -> None:
        self._fd = -1  # Any later call fails with EBADF instead of touching another file.
        self._descriptor = None

    def _open_descriptor(self) -> _Descriptor:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "file is closed")
        return self._descriptor


class _LocalLock:
    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._fd)
            os.close(self._fd)
            raise AlreadyLocked(path, holder) from None

    def release(self) -> None:
        os.close(self._fd)


def _holder(descriptor: int) -> int | None:
    """Return the id of the process that has locked a file, from Linux's table of locks; None if that does not say."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return None
    holders = [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == file]
    return holders[0] if len(holders) == 1 and holders[0] > 0 else None


class _Spares:
    """Descriptors that are kept back for files: connections can take all others, and are then refused."""

    __slots__ = ("_count", "_held")

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[_Descriptor] = []
        self._fill()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Call ``os.open``; give up one of these descriptors if the process has no other left."""
        while True:
            try:
                opened = os.open(path, flags, mode)
            except OSError as error:
                if error.errno != errno.EMFILE or not self._held:
                    raise
                self._held.pop()
            else:
                self._fill()
                return opened

    def _fill(self) -> None:
        """Take back what was given, as far as there are descriptors again."""
        try:
            while len(self._held) < self._count:
                self._held.append(_Descriptor(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)))
        except OSError:
            """None is left."""


class LocalDisk:
    """The ``Disk`` of the operating system."""

    __slots__ = ("_spares", "_syncs")

    def __init__(self, *, spare_descriptors: int = 0) -> None:
        """Reserve ``spare_descriptors`` for the files that this disk opens."""
        self._spares = _Spares(spare_descriptors)
        self._syncs = _Syncs()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return LocalFile(path, create=create, open_file=self._spares.open, syncs=self._syncs)

    def read(self, path: str) -> bytes:
        descriptor = _Descriptor(self._spares.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return _read_at(descriptor, os.fstat(descriptor.fd).st_size, 0)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = f"{path}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = _Descriptor(self._spares.open(temporary, flags))
        try:
            view = memoryview(data)
            while len(view):
                view = view[os.write(descriptor.fd, view) :]
            if sync:
                os.fsync(descriptor.fd)
        except OSError:
            os.unlink(temporary)  # On a full disk every byte counts.
            raise
        os.replace(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    async def write_atomic_off_loop(self, path: str, data: Buffer) -> None:
        await wrap(self.write_atomic)(path, data)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    async def remove_off_loop(self, path: str) -> None:
        await wrap(os.unlink)(path)

    async def remove_tree_off_loop(self, path: str) -> None:
        await wrap(self.remove_tree)(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    async def make_dirs_off_loop(self, directories: Directories) -> None:
        await wrap(self._make_dirs)(directories)

    def _make_dirs(self, directories: Directories) -> None:
        for directory, files in directories.items():
            os.makedirs(directory, exist_ok=True)
            for name, data in files.items():
                self._make_file(f"{directory}/{name}", data)

    def _make_file(self, path: str, data: bytes) -> None:
        try:
            descriptor = _Descriptor(self._spares.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        except FileExistsError:
            return
        if data and os.write(descriptor.fd, data) < len(data):
            os.unlink(path)
            raise OSError(errno.ENOSPC, f"short write to {path}")

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def sync_dir(self, path: str) -> None:
        descriptor = _Descriptor(self._spares.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.fsync(descriptor.fd)

    async def sync_dir_off_loop(self, path: str) -> None:
        await wrap(self.sync_dir)(path)

    def lock(self, path: str) -> _LocalLock:
        return _LocalLock(path)

    def identity(self, path: str) -> str:
        return identity_of(path)

    def usage(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
