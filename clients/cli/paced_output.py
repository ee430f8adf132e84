"""Standard output whose reader may be slow (``| less``): written without ever stopping the event loop.

A write to a pipe that is full blocks the whole process, and with it the heartbeats of a group's member. So a pipe is
written in pieces of ``_PIECE_BYTES``, each when it fits: POSIX lets a pipe that is ready take so much at once. Files
take everything.
"""

import asyncio
import os
import select
import stat
from collections.abc import Awaitable, Callable
from typing import Final

_PIECE_BYTES: Final = select.PIPE_BUF
_LOOK_SECONDS: Final = 0.5
"""How long to wait for the reader before the caller may do something else."""


class PacedOutput:
    """One descriptor. Its mode is left as it is: other processes may share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self._may_block = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
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
                data = data[os.write(self._descriptor, piece) :]
            except BlockingIOError:  # Another process has made it non-blocking.
                break
        return data

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
