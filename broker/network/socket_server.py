"""Listening sockets, and the list of connections that came in by them.

Binding and serving are two steps, because a broker registers its ports before it is ready to serve.

Connections beyond ``max.connections`` or ``max.connections.per.ip`` are closed as soon as they are accepted: an asyncio
server cannot stop accepting as Kafka does. So are those whose descriptor is one of the last of the process: logs must
be able to roll when there are many connections, so the last quarter of the descriptors is kept back for them. A
connection that has done nothing may be closed in place of the new one (``connection_slots``). Those without a request
for ``connections.max.idle.ms`` are closed by a sweep. When the server stops it takes no new request, lets what is
written leave for a moment, and then cuts.

A connection that carries heartbeats is handed to ``heartbeats``. It keeps its slot, and counts as one of its address,
until that has closed it. Only the listener between brokers has such connections.
"""

import asyncio
import itertools
import logging
import resource
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listener_limits import ListenerLimits, parse_listener_limits
from oncelog.broker.config.listeners import Listener, parse_per_ip_limits
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.network.connection import Connection
from oncelog.broker.network.connection_slots import ConnectionSlots
from oncelog.broker.network.frames import new_scratch
from oncelog.broker.network.heartbeats import Heartbeats
from oncelog.broker.network.long_requests import LongRequests
from oncelog.broker.network.loop_turns import LoopTurns
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.network.turn_share import TurnShare
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.connection_rates import ConnectionRates
from oncelog.broker.quotas.windowed_rate import Windows

logger = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_TIME: Final = 10
_STOP_SECONDS: Final = 1.0
_MOST_KEPT_BACK: Final = 10_000
_COMPANIONS: Final = {"localhost": ("127.0.0.1", "::1"), "": ("0.0.0.0", "::")}
"""Hosts that mean one address of each IP version. They share a port; the second is opened if the machine has it."""


@dataclass(slots=True)
class Traffic:
    """What went over one listener since the broker started, and how many connections it has now."""

    connections: int = 0
    accepted: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    successful_authentications: int = 0
    failed_authentications: int = 0

    def add(self, connection: Connection) -> None:
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.writer.bytes_out


Guard: TypeAlias = Callable[[Connection, Dispatcher, Traffic], None]
"""Sets a gate before the requests of a connection, which counts authentications in the listener's traffic."""
NO_GUARDS: Final[Mapping[str, Guard]] = MappingProxyType({})
Secure: TypeAlias = Callable[[Connection, Traffic], asyncio.BaseProtocol]
"""Puts TLS between a socket and a connection, and counts handshakes in the listener's traffic."""
NO_TLS: Final[Mapping[str, Secure]] = MappingProxyType({})


class SocketServer:
    """Implements ``connection.Owner``."""

    def __init__(
        self,
        config: BrokerConfig,
        supervisor: Supervisor,
        heartbeats: Heartbeats | None = None,
        rates: ConnectionRates | None = None,
    ) -> None:
        """Serve nothing yet; ``heartbeats`` responds to those of other brokers; None: the connections do."""
        self._rates = rates or ConnectionRates(Windows())
        self._listener_limits: dict[str, ListenerLimits] = {}
        self._heartbeats = heartbeats
        self._config = config
        self._supervisor = supervisor
        self._dispatcher: Dispatcher | None = None
        self._guards = NO_GUARDS
        self._tls = NO_TLS
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: dict[Connection, None] = {}
        self._slots: ConnectionSlots[Connection] = ConnectionSlots()
        self._adopted: set[Connection] = set()
        """Those that ``heartbeats`` has: they keep their slots when they have ended here."""
        self._inter_broker = ""
        """The name of the listener between brokers."""
        self._ended: dict[str, Traffic] = {}
        """By listener: the traffic of the connections that are gone, and how many there ever were."""
        self._first_kept_back = first_descriptor_kept_back(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        """The system gives out the lowest descriptor that is free, so this one says how many are in use."""
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._per_ip_limits = parse_per_ip_limits(config.max_connections_per_ip_overrides)
        self._scratch = new_scratch()
        self.response_memory = ResponseMemory(config.oncelog_responses_max_bytes)
        self.turn_share = TurnShare()
        self.long_requests = LongRequests()
        self._connection_ids = itertools.count(1)
        self._turns = LoopTurns()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Event | None = None

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by other limits from now on. Connections that there are stay, as in Kafka."""
        self._config = config
        self._per_ip_limits = parse_per_ip_limits(config.max_connections_per_ip_overrides)
        self._listener_limits = parse_listener_limits(config, self._ended)
        self._set_rates()

    def _set_rates(self) -> None:
        rates = {name: limits.max_connection_creation_rate for name, limits in self._listener_limits.items()}
        config = self._config
        self._rates.set_limits(config.max_connection_creation_rate, rates, backlog=config.socket_listen_backlog_size)

    @property
    def connection_count(self) -> int:
        """Connections, those included that carry heartbeats or are being closed."""
        return len(self._connections.keys() | self._adopted)

    def traffic(self) -> dict[str, Traffic]:
        """Return the traffic by the listener's name. It walks over the connections."""
        traffic = {name: replace(ended) for name, ended in self._ended.items()}
        for connection in self._connections:
            here = traffic[connection.info.listener_name]
            here.connections += 1
            here.add(connection)
        for connection in self._adopted - self._connections.keys():
            traffic[connection.info.listener_name].connections += 1
        return traffic

    async def bind(self, listeners: Iterable[Listener], inter_broker: str) -> dict[str, int]:
        """Take the listeners' addresses; returns the port of each, by name. OSError when one is not to be had.

        ``inter_broker`` is the name of the one that brokers connect to.
        """
        listeners = list(listeners)
        self._inter_broker = inter_broker
        self._ended = {listener.name: Traffic() for listener in listeners}
        self._listener_limits = parse_listener_limits(self._config, self._ended)
        self._set_rates()
        return {listener.name: await self._open(listener) for listener in listeners}

    async def serve(
        self, dispatcher: Dispatcher, guards: Mapping[str, Guard] = NO_GUARDS, tls: Mapping[str, Secure] = NO_TLS
    ) -> None:
        """Accept connections; ``guards`` are called with those to the listeners where clients authenticate."""
        self._dispatcher = dispatcher
        self._guards = guards
        self._tls = tls
        for server in self._servers:
            await server.start_serving()
        self._turns.start()
        self._schedule_sweep()

    async def _open(self, listener: Listener) -> int:
        first, *others = _COMPANIONS.get(listener.host, (listener.host,))
        port = await self._bind(listener.name, first, listener.port)
        for host in others:
            try:
                await self._bind(listener.name, host, port)
            except OSError as error:
                logger.debug("%s is not also reachable at %s: %s", listener, host, error)
        return port

    async def _bind(self, name: str, host: str, port: int) -> int:
        server = await asyncio.get_running_loop().create_server(
            partial(self._connection, name),
            host,
            port,
            backlog=self._config.socket_listen_backlog_size,
            start_serving=False,
        )
        self._servers.append(server)
        self._size_buffers(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _size_buffers(self, server: asyncio.Server) -> None:
        """Set the sizes of socket buffers that are configured. Connections inherit them from what they came to."""
        sizes = {
            socket.SO_SNDBUF: self._config.socket_send_buffer_bytes,
            socket.SO_RCVBUF: self._config.socket_receive_buffer_bytes,
        }
        for option, size in sizes.items():
            if size > 0:
                for listening in server.sockets:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)

    def _connection(self, listener_name: str) -> asyncio.BaseProtocol:
        if self._dispatcher is None:
            return _Refused()
        connection = Connection(self._dispatcher, self._supervisor, self, self._config, listener_name, self._scratch)
        guard = self._guards.get(listener_name)
        if guard is not None:
            guard(connection, self._dispatcher, self._ended[listener_name])
        secure = self._tls.get(listener_name)
        return connection if secure is None else secure(connection, self._ended[listener_name])

    # connection.Owner

    def new_connection_id(self) -> int:
        return next(self._connection_ids)

    def all_accepted_until(self) -> float:
        return self._turns.all_accepted_until()

    def adopt_heartbeats(self, connection: Connection, transport: asyncio.Transport) -> bool:
        if self._heartbeats is None or connection.info.listener_name != self._inter_broker:
            return False
        max_idle_ms = self._config.connections_max_idle_ms
        max_idle_seconds = max_idle_ms / 1000 if max_idle_ms > 0 else None
        if not self._heartbeats.adopt(transport, max_idle_seconds, partial(self._heartbeats_lost, connection)):
            return False
        self._adopted.add(connection)
        return True

    def _heartbeats_lost(self, connection: Connection) -> None:
        self._adopted.discard(connection)
        if connection not in self._connections:
            self._release(connection)

    def connection_made(self, connection: Connection) -> bool:
        host, name = connection.info.client_host, connection.info.listener_name
        self._connections[connection] = None
        self._ended[name].accepted += 1
        self._per_ip[host] += 1
        self._per_listener[name] += 1
        full = self._full_count(host, name)
        if full is not None:
            logger.warning("Refused the connection of %s: %s is reached", connection.info, full)
            return False
        now = asyncio.get_running_loop().time()
        has_descriptor = connection.info.descriptor < self._first_kept_back
        is_protected = name == self._inter_broker and len(self._ended) > 1
        admission = self._rates.admit(host, name, now, is_between_brokers=is_protected)
        if admission.is_closed:
            return has_descriptor and self._hold(connection, admission.delay)
        if admission.delay > 0:
            connection.info.throttle(admission.delay)
        decision = self._slots.take(
            connection,
            now,
            max_connections=self._config.max_connections,
            has_descriptor=has_descriptor,
            is_protected=is_protected,
        )
        if decision.displaced is not None:
            displaced = decision.displaced
            logger.warning(
                "Closing the connection of %s for a new one: %s", displaced.info, self._bound(has_descriptor)
            )
            displaced.abort()
        elif not decision.is_accepted:
            logger.warning("Refused the connection of %s: %s", connection.info, self._bound(has_descriptor))
        else:
            logger.debug("Accepted the connection of %s", connection.info)
        return decision.is_accepted

    def _full_count(self, host: str, listener_name: str) -> str | None:
        """Return the setting that allows no more connections of the address, or of the listener; None if all do."""
        if self._per_listener[listener_name] > self._listener_limits[listener_name].max_connections:
            return f"listener.name.{listener_name.lower()}.max.connections"
        if self._per_ip[host] > self._per_ip_limits.get(host, self._config.max_connections_per_ip):
            return "max.connections.per.ip"
        return None

    def _hold(self, connection: Connection, seconds: float) -> bool:
        """Close a connection that came too fast after a delay. Return False if there is none: it is closed now."""
        if seconds <= 0:
            key = "max.connection.creation.rate"
            logger.warning("Refused the connection of %s: too many wait because of %s", connection.info, key)
            return False
        logger.warning("Refused the connection of %s: connection_creation_rate of its address", connection.info)
        connection.info.throttle(2 * seconds)
        asyncio.get_running_loop().call_later(seconds, connection.abort)
        return True

    def _bound(self, has_descriptor: bool) -> str:
        """Return the setting that allows no more connections."""
        if has_descriptor:
            return "max.connections is reached"
        return f"{self._first_kept_back} files are open, the others are kept for logs; raise ulimit -n"

    def connection_lost(self, connection: Connection) -> None:
        del self._connections[connection]
        logger.debug(
            "The connection of %s has ended: %d bytes received, %d sent",
            connection.info,
            connection.bytes_in,
            connection.writer.bytes_out,
        )
        self._ended[connection.info.listener_name].add(connection)
        if connection not in self._adopted:
            self._release(connection)
        if self._all_lost is not None and not self._connections:
            self._all_lost.set()

    def _release(self, connection: Connection) -> None:
        """Free the slot of a connection, and its place among those of its address."""
        self._slots.release(connection)
        host = connection.info.client_host
        self._per_listener[connection.info.listener_name] -= 1
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]

    # Idle connections

    def _schedule_sweep(self) -> None:
        if self._config.connections_max_idle_ms > 0:
            delay = self._config.connections_max_idle_ms / 1000 / _SWEEPS_PER_IDLE_TIME
            self._sweep_timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._config.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            connection.note_reading()
            if connection.last_activity <= oldest and connection.is_idle:
                logger.info("Closing the idle connection of %s", connection.info)
                connection.abort()
        self._schedule_sweep()

    # The end

    def stop_listening(self) -> None:
        """Accept no connection from now on."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._turns.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    async def stop(self) -> None:
        """Close every connection, in a bounded time."""
        self.stop_listening()
        self._all_lost = asyncio.Event()
        for connection in list(self._connections):
            connection.close()
        if not self._connections:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._all_lost.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()


class _Refused(asyncio.Protocol):
    """A connection that came before the broker was ready, on a loop that listens as soon as it binds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def first_descriptor_kept_back(limit: int) -> int:
    """Return the lowest descriptor that no client's connection may have, of ``limit`` of the process."""
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(limit // 4, _MOST_KEPT_BACK)
