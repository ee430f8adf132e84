"""Standard output whose reader may be slow (``| less``) or go away (``| head``), written beside the event loop.

A write to a pipe that is full blocks the whole process, and with it the heartbeats of a group's member. So a pipe is
written in pieces of ``_PIECE_BYTES``, each when it fits: POSIX lets a pipe that is ready take so much at once. Files
take everything.

What was written to a pipe is not read yet, and is lost when its reader goes away: ``taken`` is what it has read.
"""

import asyncio
import fcntl
import os
import select
import stat
import termios
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

_PIECE_BYTES: Final = select.PIPE_BUF
_LOOK_SECONDS: Final = 0.5
"""How long to wait for the reader before the caller may do something else."""
_READ_SECONDS: Final = 0.05
"""Between two looks at whether the reader has read everything: the kernel does not tell."""
_LEAVE_LOOKS: Final = 5
"""How often to look after that whether the reader stays: ``head`` ends as soon as it has read enough."""
_INT: Final = Struct("i")


class PacedOutput:
    """One descriptor. Its mode is left as it is: other processes may share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(mode)
        self._may_block = self._is_pipe or stat.S_ISSOCK(mode) or os.isatty(descriptor)
        self.written = 0
        """Bytes that were written so far."""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Write everything. ``meanwhile`` is called twice a second while the reader takes nothing. Raises ``OSError``.

        If it is cancelled, part of the data may be written.
        """
        left = self._write_some(memoryview(data))
        while left:
            if not await self._is_writable_soon():
                await meanwhile()
            left = self._write_some(left)

    def _write_some(self, data: memoryview) -> memoryview:
        """Write what can be written now; return the rest."""
        while data and (not self._may_block or self._poll.poll(0)):
            piece = data[:_PIECE_BYTES] if self._may_block else data
            try:
                size = os.write(self._descriptor, piece)
                self.written += size
                data = data[size:]
            except BlockingIOError:  # Another process has made it non-blocking.
                break
        return data

    @property
    def taken(self) -> int:
        """How many of the written bytes the reader has read; of what is no pipe, all."""
        return self.written - self._unread() if self._is_pipe else self.written

    def _unread(self) -> int:
        unread: int = _INT.unpack(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(_INT.size)))[0]
        return min(unread, self.written)

    @property
    def has_reader(self) -> bool:
        """Whether what is written to a pipe can still be read."""
        return not self._is_pipe or not any(event & select.POLLERR for _, event in self._poll.poll(0))

    async def finish(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Return when the reader has read everything, or has gone. ``meanwhile`` is called twice a second."""
        looks = 0
        while self.has_reader and self.taken < self.written:
            looks += 1
            if looks * _READ_SECONDS % _LOOK_SECONDS < _READ_SECONDS:
                await meanwhile()
            await asyncio.sleep(_READ_SECONDS)
        for _ in range(_LEAVE_LOOKS if self._is_pipe else 0):
            if not self.has_reader:
                break
            await asyncio.sleep(_READ_SECONDS)

    async def _is_writable_soon(self) -> bool:
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(self._descriptor, writable.set)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await writable.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_writer(self._descriptor)
        return True
