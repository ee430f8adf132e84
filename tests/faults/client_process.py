"""A client of the load as its director has it: a process that is told to run and to pause, and that tells of itself."""

import asyncio
import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults.access import VARIABLE, Access
from tests.faults.history import Transaction, TransactionKey
from tests.interop.drivers.program import JavaClient
from tests.processes import REPOSITORY

ROLES: Final = ("writer", "worker")
_END_SECONDS: Final = 10.0


class ClientKind(NamedTuple):
    """How one kind of client is started."""

    command: Callable[[str, str], list[str]]
    """From bootstrap servers and name."""
    security: Callable[[Access], Mapping[str, str]]
    """Its settings of security."""


def _python(module: str) -> Callable[[str, str], list[str]]:
    return lambda address, name: [sys.executable, "-m", f"tests.faults.programs.{module}", address, name]


def _java(address: str, name: str) -> list[str]:
    return JavaClient("java-client-4").command("TransactionalLoad", address, name)


CLIENTS: Final = {
    "confluent": ClientKind(_python("confluent_client"), Access.of_librdkafka),
    "java": ClientKind(_java, Access.of_java),
    "oncelog": ClientKind(_python("oncelog_client"), Access.of_oncelog),
}


class ClientDied(Exception):
    """A client's process ended by itself."""


class RoleState:
    """What one role has done."""

    def __init__(self) -> None:
        self.is_paused = False
        self.commits: list[float] = []
        """When each was told, by the loop's clock."""


class _Incarnation(asyncio.SubprocessProtocol):
    """One run of a client's program."""

    def __init__(self, on_line: Callable[[bytes], None], on_change: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_change = on_change
        self._rest = b""
        self._transport: asyncio.SubprocessTransport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the process is gone and all that it said was heard."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line)
        self._on_change()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)
        self._on_change()

    def _stdin(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        stdin = self._transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        return stdin

    def tell(self, line: str) -> None:
        self._stdin().write(line.encode() + b"\n")

    async def kill(self) -> None:
        assert self._transport is not None
        if not self.ended.done():
            self._transport.kill()
        await self.ended

    async def end(self, seconds: float) -> None:
        """Ask the process to end; kill it if it does not."""
        if not self.ended.done():
            self._stdin().close()
            await asyncio.wait([self.ended], timeout=seconds)
        await self.kill()


class ClientProcess:
    """One client. All that it says is kept in ``NAME.log``, with the time; its standard error in ``NAME.stderr``."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.roles = {role: RoleState() for role in ROLES}
        self.transactions: dict[TransactionKey, Transaction] = {}
        self.troubles: list[str] = []
        self._access = Access("")
        self._log = (directory / f"{name}.log").open("ab", buffering=0)
        self._errors = directory / f"{name}.stderr"
        self._loop = asyncio.get_running_loop()
        self._incarnation: _Incarnation | None = None
        self._heard = asyncio.Event()

    async def start(self, access: Access) -> None:
        self._access = access
        kind = CLIENTS[self.name]
        numbers = [str(1 + self._last_number(role)) for role in ROLES]
        command = [*await asyncio.to_thread(kind.command, access.bootstrap, self.name), *numbers]
        security = "".join(f"{key}={value}\n" for key, value in kind.security(access).items())
        environment = {**os.environ, VARIABLE: security}
        self._incarnation = incarnation = _Incarnation(self._hear_line, self._heard.set)
        with self._errors.open("ab") as errors:
            await self._loop.subprocess_exec(
                lambda: incarnation, *command, cwd=REPOSITORY, stderr=errors, env=environment, start_new_session=True
            )

    def _last_number(self, role: str) -> int:
        return max((key.number for key in self.transactions if key.role == role), default=0)

    async def restart(self, access: Access | None = None) -> None:
        """kill -9, and a successor that runs at once, with another access if one is given.

        What the process was about is unknown, until its successor has begun.
        """
        assert self._incarnation is not None
        await self._incarnation.kill()
        for transaction in self.transactions.values():
            if transaction.outcome == "open":
                transaction.outcome, transaction.detail = "unknown", "its process was killed"
        await self.start(access or self._access)
        for role in ROLES:
            self.order(role, "run")

    async def stop(self) -> None:
        """End the process, whatever it does."""
        if self._incarnation is not None:
            await self._incarnation.end(_END_SECONDS)
        self._log.close()

    def order(self, role: str, verb: str) -> None:
        assert self._incarnation is not None
        if verb == "run":
            self.roles[role].is_paused = False
        self._incarnation.tell(f"{role} {verb}")

    async def until(self, condition: Callable[[], bool], deadline: float, failing: str) -> None:
        """Return when something that it says made the condition true; ``deadline`` is by the loop's clock.

        Raises ``TimeoutError`` and ``ClientDied``; ``failing`` says what did not happen.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while not condition():
                    if self._incarnation is None or self._incarnation.ended.done():
                        raise ClientDied(f"{self.name} ended, see {self._errors}: {' / '.join(self.troubles[-2:])}")
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.name}: {failing} in time; its last troubles: {self.troubles[-3:]}") from None

    def has_committed(self, role: str, count: int) -> bool:
        return len(self.roles[role].commits) >= count

    def has_paused(self, role: str) -> bool:
        return self.roles[role].is_paused

    # What it says

    def _hear_line(self, line: bytes) -> None:
        now = datetime.datetime.fromtimestamp(time.time_ns() / 1e9, datetime.UTC).isoformat(" ", "milliseconds")
        self._log.write(f"[{now[:23]}] ".encode() + line + b"\n")
        self._hear(json.loads(line))

    def _hear(self, said: dict[str, str | int]) -> None:
        role, event, number, detail = str(said["role"]), str(said["event"]), int(said["number"]), str(said["detail"])
        key = TransactionKey(self.name, role, number)
        match event:
            case "begin":
                self.transactions[key] = Transaction(int(said["count"]))
            case "committed" | "aborted" | "unknown":
                self.transactions[key].outcome = event
                self.transactions[key].detail = detail
                if event == "committed":
                    self.roles[role].commits.append(self._loop.time())
            case "paused":
                self.roles[role].is_paused = True
            case "trouble":
                self.troubles.append(f"{role}: {detail}")
            case _:
                raise ValueError(f"{self.name} says {said}")


def lacking(clients: Sequence[str]) -> str | None:
    """What this machine lacks to run these clients, with the command that installs it."""
    return JavaClient("java-client-4").lacking() if "java" in clients else None
