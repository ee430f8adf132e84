"""How an experiment reaches a running cluster: the unix socket ``control.sock`` in its directory.

One connection is one order: a line of JSON there, a line of JSON back. The socket is reached through a descriptor of
its directory, as its path may be longer than the 107 bytes that a socket's address has room for.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

FILE_NAME: Final = "control.sock"
_MAX_LINE_BYTES: Final = 1 << 16


class NotRunning(Exception):
    """No process listens on the socket: no cluster runs in this directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do, with which members of the cluster, by name."""

    verb: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One process. ``pid`` is None while it does not run, ``exit_code`` unless it has ended."""

    member: str
    state: str
    pid: int | None
    address: str
    exit_code: int | None
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How the members are that the order was about, and what could not be done."""

    members: list[MemberStatus] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Execute: TypeAlias = Callable[[Order], Awaitable[Report]]
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]


async def serve_control(directory: Path, execute: Execute, spawn: Spawn) -> asyncio.Server:
    """Listen for orders until the server is closed."""
    with _socket_path(directory) as path:
        return await asyncio.get_running_loop().create_unix_server(lambda: _Reception(execute, spawn), path)


async def give_order(directory: Path, order: Order) -> Report:
    """Have the cluster of this directory do something. Raises ``NotRunning``."""
    loop = asyncio.get_running_loop()
    try:
        with _socket_path(directory) as path:
            transport, response = await loop.create_unix_connection(_Line, path)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise NotRunning(f"no cluster is running in {directory}") from None
    try:
        transport.write(json.dumps(asdict(order)).encode() + b"\n")
        found = json.loads(await response.line)
    except ConnectionError:
        raise NotRunning(f"the cluster in {directory} stopped meanwhile") from None
    finally:
        transport.close()
    return Report(members=[MemberStatus(**member) for member in found["members"]], problems=found["problems"])


@contextmanager
def _socket_path(directory: Path) -> Iterator[str]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{FILE_NAME}"
    finally:
        os.close(descriptor)


class _Line(asyncio.Protocol):
    """Reads one line; the future fails with ``ConnectionError`` when the connection ends before."""

    def __init__(self) -> None:
        self.line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        line, newline, _ = self._received.partition(b"\n")
        if newline and not self.line.done():
            self.line.set_result(line)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.line.done():
            self.line.set_exception(ConnectionResetError("no response"))


class _Reception(asyncio.Protocol):
    """The cluster's end of a connection."""

    def __init__(self, execute: Execute, spawn: Spawn) -> None:
        self._execute = execute
        self._spawn = spawn
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        line, newline, _ = self._received.partition(b"\n")
        if newline:
            self._transport.pause_reading()
            self._spawn(self._carry_out(line), "order")
        elif len(self._received) > _MAX_LINE_BYTES:
            self._transport.abort()

    async def _carry_out(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            order = Order(verb=str(found["verb"]), members=tuple(map(str, found["members"])))
        except (ValueError, KeyError, TypeError):
            self._transport.abort()
            return
        report = await self._execute(order)
        self._transport.write(json.dumps(asdict(report)).encode() + b"\n")
        self._transport.close()
