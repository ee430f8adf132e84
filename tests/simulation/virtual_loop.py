"""An event loop in virtual time, with a network in memory.

Time stands still while callbacks run and jumps to the next timer when nothing is ready, so that hours of timeouts pass
in milliseconds and a run depends on nothing but its seed. Sockets are what DESIGN's seams allow: ``create_server`` and
``create_connection`` with protocols. Each direction of a connection is a first-in-first-out pipe with a random delay
and random segmentation drawn from the run's own ``random.Random``. ``run_in_executor`` is refused: whatever is off the
loop in production goes through the disk seam, which is inline here.

Several processes share the loop. Each runs in a context of its own that names its :class:`SimProcess`; callbacks,
tasks and timers inherit it. A process that is killed leaves nothing behind: the loop drops its callbacks and the other
ends of its connections see a reset, as the kernel would have it. One that is paused (SIGSTOP) does nothing until it
goes on, and then everything at once. Processes can be cut off from each other: what they send then arrives when they
are joined again, as with TCP, and a connection that is tried meanwhile is made by then.
"""

import asyncio
import contextvars
import heapq
import inspect
import random
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from tests.simulation.buggify import Swarm, current_swarm
from tests.simulation.journal import current_journal
from tests.simulation.request_events import describe_request

_PROCESS: contextvars.ContextVar["SimProcess | None"] = contextvars.ContextVar("process", default=None)
_ON_SIDE_LOOP: contextvars.ContextVar[bool] = contextvars.ContextVar("on side loop", default=False)
"""Whether a callback belongs to a thread of its process that does not run the process's event loop."""


class SimProcess:
    """A simulated operating-system process: what it started ends with it."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.stalled = False
        """The thread that runs the process's event loop waits for a disk; other threads go on."""
        self._held: deque[Callable[[], None]] = deque()
        self._loop = loop
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = _FEW_TASKS
        loop.processes.append(self)

    def own(self, task: "asyncio.Task[Any]") -> None:
        """Remember a task that this process has started; forget those that are done, now and then."""
        if len(self.tasks) >= self._most_tasks:
            self.tasks = [known for known in self.tasks if not known.done()]
            self._most_tasks = 2 * len(self.tasks) + _FEW_TASKS
        self.tasks.append(task)

    def run(self, work: Any) -> "asyncio.Task[Any]":
        """Run a coroutine inside this process."""
        return self._loop.create_task(work, context=self.context)

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        self._loop.journal.note(self.name, "pause")

    def stall(self) -> None:
        """A disk call on the event loop does not return, until ``resume``."""
        self.stalled = True
        self._loop.journal.note(self.name, "stalled disk")

    def resume(self) -> None:
        """SIGCONT, or the disk call returns: what was due meanwhile happens now, in its order."""
        self.paused = self.stalled = False
        self._loop.journal.note(self.name, "resume")
        held, self._held = self._held, deque()
        for call in held:
            self._loop.call_soon(call, context=self.context)

    def call(self, callback: Callable[..., None], *args: Any) -> None:
        """Run one of this process's callbacks, unless or until it cannot run."""
        if not self.alive:
            return
        if self.paused or (self.stalled and not _ON_SIDE_LOOP.get()):
            context = contextvars.copy_context()
            self._held.append(lambda: context.run(callback, *args))
        else:
            callback(*args)

    def kill(self) -> None:
        """kill -9. Its tasks stay as they are, and the loop keeps them: to collect them runs ``finally`` blocks."""
        self.alive = False
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # What it was to await will not begin either.
                    work.close()  # It has not begun; suppress the warning that it never will.
        self._loop.network.cut(self)


def process_name() -> str:
    """Return the name of the process that runs, or "client" outside of every one."""
    return _name_of(_PROCESS.get())


def _name_of(process: SimProcess | None) -> str:
    return "client" if process is None else process.name


HIGH_WATER = 64 * 1024
MAX_SEGMENT = 64 * 1024
FIRST_CLIENT_PORT: Final = 50_000
_BYTEWISE: Final = 400
"""Bytes of the longest write that may cross the network byte by byte."""
_FEW_TASKS: Final = 32
_FEW_TIMERS: Final = 100
_RESOLUTION: Final = 1e-9
"""Seconds; timers that are due within it of each other run in the same turn."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set, yet the run is not finished."""


class _NoSelector:
    """Stands where a loop expects a selector: nothing here waits for one."""

    def select(self, timeout: float | None) -> NoReturn:
        raise AssertionError("the virtual loop does not wait")

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. ``network`` holds the listeners and connections of every node."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _NoSelector()
        self._clock_resolution = _RESOLUTION
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; the second member is the order in which they were set, in which those of one moment run."""
        self._timers_set = 0
        self._timers_cancelled = 0
        self.journal = current_journal()
        self.swarm = current_swarm()
        self.journal.now = self.time
        self.rng = rng
        self.network = Network(self, rng)
        self.processes: list[SimProcess] = []

    def close(self) -> None:
        """Close the loop, then what killed processes left pending, with no effect.

        Left to the garbage collector, their ``finally`` blocks would run in the middle of another test.
        """
        if not self.is_closed():
            self.journal.seconds += self._now
        super().close()
        self._timers.clear()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()  # Of an async generator that was collected, what closes it.
            assert work is not None
            with suppress(RuntimeError):  # It awaits while it is closed, or looks for the running loop.
                work.close()

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass within a callback, as in one that computes for long: timers that fall due run late."""
        self._now += seconds

    def pending_timers(self) -> int:
        """Return how many timers are set and not cancelled."""
        return sum(not handle.cancelled() for _, _, handle in self._timers)

    def _run_once(self) -> None:
        """Run what is ready, and what is due by then; jump to the next timer first if nothing is ready.

        The loop's own does the same for real time and real files, which takes a third of a history's time.
        """
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock(f"nothing left to do at {self._now:.3f} s")
            self._now = max(self._now, timers[0][0])
        due = self._now + _RESOLUTION
        while timers and timers[0][0] < due:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle.cancelled():
                self._timers_cancelled -= 1
            else:
                ready.append(handle)
        for _ in range(len(ready)):
            call = ready.popleft()
            if not call.cancelled():
                call._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += handle._scheduled  # type: ignore[attr-defined]
        if self._timers_cancelled > _FEW_TIMERS and 2 * self._timers_cancelled > len(self._timers):
            self._timers[:] = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 1  # This one is marked after this call.

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> "asyncio.Task[Any]":
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        if process is not None:
            process.own(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            callback, args = process.call, (callback, *args)
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_closed():  # What a killed process left behind is collected; its clean-up has no effect.
            self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            callback, args = process.call, (callback, *args)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_closed():
            self._timers_set += 1
            handle._scheduled = True  # type: ignore[attr-defined]
            heapq.heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_closed():  # As in ``call_soon``.
            super().call_exception_handler(context)

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise AssertionError(f"{func} leaves the loop: not simulable")

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **_: Any
    ) -> Any:
        assert ssl is None, "TLS is not simulated"
        return self.network.listen(protocol_factory, host or "127.0.0.1", port or 0)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **_: Any
    ) -> Any:
        assert ssl is None, "TLS is not simulated"
        return await self.network.connect(protocol_factory, host, port)


class SimSideLoop:
    """The ``SideLoop`` of the process in which it is made: it turns while that is stalled, not while it is paused."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._main = contextvars.copy_context()
        self._side = contextvars.copy_context()
        self._side.run(_ON_SIDE_LOOP.set, True)

    def adopt(self, transport: Any, factory: Callable[[], asyncio.Protocol]) -> bool:
        former = transport.get_protocol()
        self._loop.call_soon(former.connection_lost, None, context=self._main)
        transport.set_protocol(self._side.run(factory))
        transport.context = self._side
        self._side.run(transport.get_protocol().connection_made, transport)
        return True

    def post(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._main)

    def close(self) -> None:
        pass


def _nothing(transport: "SimTransport", data: bytes) -> None:
    """A tap that does nothing."""


class Network:
    """Every listener and connection of the simulated cluster, and the faults that befall them."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._listeners: dict[int, SimServer] = {}
        self._transports: dict[SimTransport, None] = {}
        self._next_port = 10_000
        self._next_client_port = FIRST_CLIENT_PORT
        self.delay_seconds = (0.000_05, 0.001)
        self.segment_bytes = MAX_SEGMENT
        self.stall_probability = 0.0
        """How likely a segment, and with it all that follows on its connection, is held up for a while."""
        self._severed: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._healed = asyncio.Event()
        self.holding: dict[SimTransport, None] = {}
        """Ends of connections that keep what they sent until the way is open again."""
        self.tap: Callable[[SimTransport, bytes], None] = _nothing
        """Called with everything that is written to a connection, before it is sent."""

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> "SimServer":
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self._listeners:
            raise OSError(98, f"error while attempting to bind on address {(host, port)}: address already in use")
        server = SimServer(self, factory, host, port)
        self._listeners[port] = server
        return server

    def cut(self, process: SimProcess) -> None:
        """The process is gone: its ports close, and the other ends of its connections see a reset."""
        for server in [known for known in self._listeners.values() if known.process is process]:
            self.forget(server)
        for transport in [known for known in self._transports if known.process is process]:
            transport.die()

    def register(self, transport: "SimTransport") -> None:
        self._transports[transport] = None

    def unregister(self, transport: "SimTransport") -> None:
        self._transports.pop(transport, None)

    def forget(self, server: "SimServer") -> None:
        if self._listeners.get(server.port) is server:
            del self._listeners[server.port]

    def sever(self, sender: str, receiver: str) -> None:
        """Hold everything that one process (by its name) sends to another, until ``heal``."""
        self._severed.add((sender, receiver))
        self._loop.journal.note(sender, "cut link", f"to {receiver}")

    def heal(self) -> None:
        """Let all processes reach each other again."""
        if self._severed:
            self._loop.journal.note("network", "heal", f"{len(self._severed)} links")
        self._severed.clear()
        self._refused.clear()
        self._healed.set()
        self._healed = asyncio.Event()
        holding, self.holding = self.holding, {}
        for transport in holding:
            transport.release()

    def refuse(self, caller: str, receiver: str, *, breaks: bool) -> None:
        """Refuse connections from one process to another, until ``accept_again``; ``breaks``: those that exist end."""
        self._refused.add((caller, receiver))
        self._loop.journal.note(caller, "refused link", f"to {receiver}")
        if breaks:
            for transport in self._between(caller, receiver):
                transport.reset()

    def accept_again(self, caller: str, receiver: str) -> None:
        """Refuse no more."""
        self._refused.discard((caller, receiver))

    def hold(self, sender: str, receiver: str) -> "list[SimTransport]":
        """Keep what one process has sent to another; return the ends of connections, to be released."""
        ends = self._between(sender, receiver)
        for transport in ends:
            transport.hold()
        return ends

    def _between(self, sender: str, receiver: str) -> "list[SimTransport]":
        wanted = sender, receiver
        return [end for end in self._transports if (_name_of(end.process), _name_of(end.peer.process)) == wanted]

    def is_severed(self, sender: SimProcess | None, receiver: SimProcess | None) -> bool:
        return sender is not None and receiver is not None and (sender.name, receiver.name) in self._severed

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple["SimTransport", Any]:
        assert host in ("127.0.0.1", "localhost"), "names of hosts are not simulated"
        swarm = self._loop.swarm
        await asyncio.sleep(self.delay() + swarm.delay(("slow connection", 0.5)))
        if _PROCESS.get() is not None and swarm.strikes("refused connection"):
            raise ConnectionRefusedError(111, f"{host}:{port} refuses a connection, for once")
        me = _PROCESS.get()
        while (server := self._listeners.get(port)) is not None and (
            self.is_severed(me, server.process) or self.is_severed(server.process, me)
        ):
            await self._healed.wait()
        if server is not None and (_name_of(me), _name_of(server.process)) in self._refused:
            self._loop.journal.note(_name_of(me), "refused connection", f"to {_name_of(server.process)}")
            raise ConnectionRefusedError(111, f"{host}:{port} refuses connections")
        if server is None:
            raise ConnectionRefusedError(111, f"nothing listens on {host}:{port}")
        self._next_client_port += 1
        name = (host, self._next_client_port)
        near = SimTransport(self._loop, self, name, (host, port), contextvars.copy_context())
        far = SimTransport(self._loop, self, (host, port), name, server.context)
        near.peer, far.peer = far, near
        server.context.copy().run(server.accept, far)
        protocol = factory()
        near.attach(protocol)
        return near, protocol

    def delay(self) -> float:
        delay = self._rng.uniform(*self.delay_seconds)
        if self.stall_probability and self._rng.random() < self.stall_probability:
            delay += self._rng.uniform(0.05, 1.5)
        return delay + self._loop.swarm.delay(("late segment", 0.3), ("very late segment", 3.0))


class SimServer:
    """What ``create_server`` returns."""

    def __init__(self, network: Network, factory: Callable[[], Any], host: str, port: int) -> None:
        self._network = network
        self._factory = factory
        self.host = host
        self.port = port
        self.process = _PROCESS.get()
        self.context = contextvars.copy_context()
        self.sockets = (_SocketName(host, port),)

    def accept(self, transport: "SimTransport") -> None:
        transport.attach(self._factory())

    def close(self) -> None:
        self._network.forget(self)

    def is_serving(self) -> bool:
        return True

    async def start_serving(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class _SocketName:
    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    peer: "SimTransport"

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        name: tuple[str, int],
        peer_name: tuple[str, int],
        context: contextvars.Context,
    ) -> None:
        super().__init__({"sockname": name, "peername": peer_name})
        self._loop = loop
        self._network = network
        self.context = context
        self.process = context.get(_PROCESS)
        network.register(self)
        self._protocol: Any = None
        self._incoming: deque[bytes] = deque()  # Arrived, not yet read because reading is paused.
        self._in_flight = 0
        self._arrival = 0.0
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._dead = False
        self._lost = False
        self._end_received = False
        self._is_client = name[1] >= FIRST_CLIENT_PORT
        self._held: deque[Callable[[], None]] = deque()
        """What arrived while the way to the other end was cut."""
        self._is_held = False

    def attach(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._drain_incoming, context=self.context)

    def get_write_buffer_size(self) -> int:
        return self._in_flight

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(part) for part in list_of_data))

    def write(self, data: Any) -> None:
        if self._closing or self._dead or not data:
            return
        whole = bytes(data)
        self._network.tap(self, whole)
        if self._loop.journal.listener is not None and self._is_client:
            self._loop.journal.note(
                _name_of(self.process), "request", describe_request(whole, _name_of(self.peer.process))
            )
        self._send_in_segments(whole, self._loop.swarm)
        if self._in_flight > HIGH_WATER and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _send_in_segments(self, data: bytes, swarm: Swarm) -> None:
        may_be_reset = not self._network.is_severed(self.process, self.peer.process)
        if may_be_reset and swarm.strikes("reset on write"):
            self.reset()
            return
        is_cut = may_be_reset and swarm.strikes("half of a write")
        if is_cut:
            data = data[: len(data) // 2]
        longest = 1 if len(data) <= _BYTEWISE and swarm.strikes("byte segments") else MAX_SEGMENT
        if swarm.strikes("split in two"):
            longest = min(longest, len(data) // 2 + 1)
        position = 0
        while position < len(data):
            size = min(len(data) - position, longest, self._segment_size())
            self._send(data[position : position + size])
            position += size
        if is_cut or (may_be_reset and swarm.strikes("reset after write")):
            self.reset()

    def reset(self) -> None:
        """Break the connection behind what was sent: both ends hear of it when that has arrived."""
        self._closing = True
        error = ConnectionResetError(104, "connection reset by the network")
        self._at_arrival(lambda: self.peer._lose(error))
        self._loop.call_at(self._arrival, self._lose, error, context=self.context)

    def _segment_size(self) -> int:
        limit = self._network.segment_bytes
        return limit if self._loop.rng.random() < 0.8 else self._loop.rng.randint(1, limit)

    def _send(self, segment: bytes) -> None:
        self._in_flight += len(segment)
        self._at_arrival(lambda: self.peer._arrive(segment))

    def _at_arrival(self, action: Callable[[], None]) -> None:
        """Do ``action`` at the other end, after everything that was sent before it."""
        self._arrival = max(self._arrival + 1e-9, self._loop.time() + self._network.delay())
        self._loop.call_at(self._arrival, self._arrived, action, context=self.peer.context)

    def _arrived(self, action: Callable[[], None]) -> None:
        if self._is_held or self._held or self._network.is_severed(self.process, self.peer.process):
            self._held.append(action)
            self._network.holding[self] = None
        else:
            action()

    def hold(self) -> None:
        """Keep what this end has sent and has not arrived, and all that it sends, until ``release``."""
        self._loop.journal.note("network", "held connection", str(self.get_extra_info("peername")))
        self._is_held = True
        self._network.holding[self] = None

    def release(self) -> None:
        """The way is open again."""
        self._is_held = False
        held, self._held = self._held, deque()
        if held:
            self._loop.journal.note("network", "late delivery", f"{len(held)} segments")
        for action in held:
            self._loop.call_soon(action, context=self.peer.context)

    def _arrive(self, segment: bytes) -> None:
        """The segment reached this end. The trace sees it, so that two runs can be compared byte by byte."""
        digest = self._loop.journal.digest
        if digest is not None:
            digest.update(f"{self._loop.time():.9f} {self.get_extra_info('peername')} {len(segment)} ".encode())
            digest.update(segment)
        sender = self.peer
        sender._in_flight -= len(segment)
        if sender._writing_paused and sender._in_flight <= HIGH_WATER // 4:
            sender._writing_paused = False
            if not sender._dead:
                self._loop.call_soon(sender._protocol.resume_writing, context=sender.context)
        if self._dead or self._closing:
            return
        self._incoming.append(segment)
        self._drain_incoming()

    def _drain_incoming(self) -> None:
        while self._incoming and self._reading and not self._closing and not self._dead:
            self._deliver(self._incoming.popleft())
        if self._end_received and not self._incoming and not self._dead:
            self._lose(None)

    def _deliver(self, segment: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(segment)
            return
        position = 0
        while position < len(segment) and not self._closing:
            view = memoryview(self._protocol.get_buffer(-1)).cast("B")
            size = min(len(view), len(segment) - position)
            view[:size] = segment[position : position + size]
            self._protocol.buffer_updated(size)
            position += size

    def close(self) -> None:
        """Finish what was written, then end the connection."""
        if not self._closing:
            self._closing = True
            self._at_arrival(self.peer._end)
            self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        self.close()

    def _end(self) -> None:
        self._end_received = True
        if not self._dead and (self._closing or not self._incoming):
            self._lose(None)

    def die(self) -> None:
        """The process at this end is gone: nothing more is delivered to it, and the other end sees a reset."""
        self._dead = True
        self._closing = True
        self._network.unregister(self)
        self._at_arrival(lambda: self.peer._lose(ConnectionResetError(104, "connection reset by peer")))

    def _lose(self, error: Exception | None) -> None:
        if self._lost or self._dead:
            return
        self._lost = self._closing = True
        self._network.unregister(self)
        self._protocol.connection_lost(error)
