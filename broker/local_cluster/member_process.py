"""One process of a cluster, and what an experiment may do to it: kill, pause, resume, stop, start again.

Each start of a process is a new ``Incarnation``. An order that ends one sets ``ended_as`` first, so any other end is
unexpected: it is reported, and nothing is restarted. A signal is sent only to an incarnation whose exit has not been
observed, so never to another process that reuses its process id.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import oncelog
from oncelog.broker.local_cluster.tether import tethered

State: TypeAlias = Literal["starting", "running", "paused", "stopped", "killed", "dead"]

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 40.0
"""A broker gives itself 30."""
_TAIL_BYTES: Final = 1500
_SOURCES: Final = str(Path(oncelog.__file__).parents[1])


class Refused(Exception):
    """Why something could not be done, in one sentence or two."""


class Incarnation(asyncio.SubprocessProtocol):
    """One run of a process."""

    def __init__(self, on_end: Callable[["Incarnation"], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._said = b""
        self._transport: asyncio.SubprocessTransport | None = None
        self.first_line: asyncio.Future[str] = loop.create_future()
        """Of standard output. Not done if the process never writes a line."""
        self.exited: asyncio.Future[int] = loop.create_future()
        """The exit code, once the process is gone; a negative one is the signal that ended it."""
        self.is_ready = False
        self.ended_as: State = "dead"
        """The state after its end: "dead" unless an order ended it."""

    @property
    def pid(self) -> int | None:
        """None before the process is made and after it has ended."""
        return None if self._transport is None or self.exited.done() else self._transport.get_pid()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self._transport is not None and not self.exited.done():
            try:
                self._transport.send_signal(number)
            except ProcessLookupError:
                pass  # It has ended; ``process_exited`` follows.

    async def until_exit(self, seconds: float | None = None) -> bool:
        """Wait for the process to end, at most so many seconds. Returns whether it is gone."""
        await asyncio.wait([self.exited], timeout=seconds)
        return self.exited.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.first_line.done():
            return
        line, newline, self._said = (self._said + data).partition(b"\n")
        if newline:
            self.first_line.set_result(line.decode(errors="replace"))
        else:
            self._said = line

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        assert code is not None
        self.exited.set_result(code)
        self._on_end(self)


class MemberProcess:
    """A broker or the ZooKeeper server: subclasses define its command line, and when it is ready."""

    def __init__(self, name: str, title: str, log: Path, announce: Callable[[str], None]) -> None:
        """Start nothing yet; ``name``: in commands, ``title``: in sentences; ``announce`` gets unintended ends."""
        self.name = name
        self.title = title
        self.log = log
        self._announce = announce
        self._incarnation: Incarnation | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    async def until_ready(self, incarnation: Incarnation) -> None:
        """Return when it is ready or has ended."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        return None if self._incarnation is None else self._incarnation.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last incarnation; None if it runs or there was none."""
        incarnation = self._incarnation
        return incarnation.exited.result() if incarnation is not None and incarnation.exited.done() else None

    @property
    def is_alive(self) -> bool:
        return self._incarnation is not None and not self._incarnation.exited.done()

    @property
    def state(self) -> State:
        incarnation = self._incarnation
        if incarnation is None:
            return "stopped"
        if incarnation.exited.done():
            return incarnation.ended_as
        if incarnation.pid is not None and _is_paused(incarnation.pid):
            return "paused"
        return "running" if incarnation.is_ready else "starting"

    async def start(self) -> None:
        """Start it; return when it is ready. Raises ``Refused``."""
        if self.is_alive:
            raise Refused(about_running(self.title, self.name, self.state))
        incarnation = self._incarnation = Incarnation(self._on_end)
        try:
            await self._launch(incarnation)
            async with asyncio.timeout(READY_SECONDS):
                await self.until_ready(incarnation)
        except TimeoutError:
            incarnation.ended_as = "killed"
            incarnation.send(signal.SIGKILL)
            await incarnation.until_exit()
            raise Refused(f"{self.title} was not ready after {READY_SECONDS:g} s{self._log_tail()}") from None
        if incarnation.exited.done():
            raise Refused(f"{self.title} did not start: {_describe(incarnation.exited.result())}{self._log_tail()}")
        incarnation.is_ready = True

    async def _launch(self, incarnation: Incarnation) -> None:
        try:
            command = self.command()
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                await asyncio.get_running_loop().subprocess_exec(
                    lambda: incarnation,
                    *tethered(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    env=_environment(),
                )
        finally:
            if incarnation.pid is None and not incarnation.exited.done():
                self._incarnation = None

    async def kill(self) -> None:
        """Send SIGKILL; return when the process is gone. Raises ``Refused``."""
        incarnation = self._alive()
        incarnation.ended_as = "killed"
        incarnation.send(signal.SIGKILL)
        await incarnation.until_exit()

    async def stop(self) -> None:
        """Send SIGTERM, also if it is paused; return when it has shut down. Raises ``Refused``."""
        incarnation = self._alive()
        incarnation.ended_as = "stopped"
        incarnation.send(signal.SIGTERM)
        incarnation.send(signal.SIGCONT)
        if not await incarnation.until_exit(STOP_SECONDS):
            await self.kill()
            raise Refused(f"{self.title} did not stop within {STOP_SECONDS:g} s, and was killed")

    async def pause(self) -> None:
        """Send SIGSTOP; return when it stands still. Raises ``Refused``."""
        incarnation = self._alive()
        incarnation.send(signal.SIGSTOP)
        assert incarnation.pid is not None
        if not await asyncio.get_running_loop().run_in_executor(None, _until_paused, incarnation.pid):
            raise Refused(f"{self.title} has ended")

    async def resume(self) -> None:
        """Send SIGCONT. Raises ``Refused``."""
        self._alive().send(signal.SIGCONT)

    async def restart(self) -> None:
        """Stop it if it runs, and start it. Raises ``Refused``."""
        if self.is_alive:
            await self.stop()
        await self.start()

    def kill_at_once(self) -> None:
        """Send SIGKILL, without waiting."""
        if self._incarnation is not None:
            self._incarnation.ended_as = "killed"
            self._incarnation.send(signal.SIGKILL)

    def _alive(self) -> Incarnation:
        incarnation = self._incarnation
        if incarnation is None or incarnation.exited.done():
            raise Refused(f"{self.title} is not running: it is {self.state}")
        if incarnation.pid is None:
            raise Refused(f"{self.title} is being started")
        return incarnation

    def _on_end(self, incarnation: Incarnation) -> None:
        if incarnation.is_ready and incarnation.ended_as == "dead":
            code = incarnation.exited.result()
            said = self._log_tail() if code >= 0 else f"; its log is {self.log}"
            self._announce(f"{self.title} ended unexpectedly: {_describe(code)}{said}")

    def _log_tail(self) -> str:
        """Return the end of what its last incarnation wrote."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return f"; its log {self.log} ends with" + "".join(f"\n  {line}" for line in lines[-8:]) if lines else ""


def about_running(title: str, name: str, state: State) -> str:
    """Return why a member that runs cannot be started, and the order that helps if it is paused."""
    if state == "paused":
        return f"{title} is paused: `oncelog cluster resume {name}` lets it go on"
    return f"{title} is {state} already"


def _environment() -> dict[str, str]:
    """Return our own environment; children run the code of this process, even if it is not installed."""
    if _SOURCES in sys.path and not _SOURCES.endswith("-packages"):
        paths = [_SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return dict(os.environ)


def _describe(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    return f"killed by {signal.Signals(-exit_code).name}"


def _is_paused(pid: int) -> bool:
    """Return whether the kernel has stopped the process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def _until_paused(pid: int) -> bool:
    """Wait until a child is stopped; False if it has ended instead."""
    try:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def serve_command(*options: str) -> list[str]:
    """Return the command line of a broker."""
    return [sys.executable, "-P", "-m", "oncelog", "serve", *options]
