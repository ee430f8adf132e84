"""The client of one Python process that Spark started: an event loop, a cluster's connections, and no thread.

Spark calls a data source in many processes: a long-lived one for each streaming query, short ones that plan, and a pool
of workers that are forked and used again for the tasks of many batches. Each has at most one client for each
``ClientSettings``, made on first use and kept until the process ends, so that a micro-batch finds its connections open.
Settings are pickled into tasks, clients never: a forked process has other keys in the cache and makes its own client.
It leaves the inherited one untouched, because that shares the parent's epoll object: to close it would unregister the
parent's sockets.

The loop runs only inside ``run``. Responses that arrive in between wait in the socket, and are read first when the loop
runs again: so a response that came in time does not time out, and a connection that the broker closed is known to be
closed before the next request is sent.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.setting_error import SettingError
from oncelog.clients.tls import TlsSettings
from oncelog.protocol.sasl.login import Login
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.reachability import ReachabilityWatch, reach
from oncelog.spark_connector.security_options import in_words_of_spark

if TYPE_CHECKING:
    from oncelog.clients.admin.admin import Admin

C = TypeVar("C")
T = TypeVar("T")

DEFAULT_REACH_SECONDS: Final = 60.0
"""As in Kafka's clients: ``default.api.timeout.ms`` of consumers, ``max.block.ms`` of producers."""
_TURNS_UNTIL_AN_END_IS_KNOWN: Final = 3
"""Turns of the loop: one reads the end of a connection, the next closes it, the third reports it closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the cluster is and how to speak to it. Hashable, and picklable into tasks."""

    bootstrap: str
    """``host:port,host:port``."""
    client_id: str = "oncelog-spark"
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    """The time of one operation, over all of its attempts."""
    reach_seconds: float = DEFAULT_REACH_SECONDS
    """The time in which a process must reach a first broker."""
    tls: TlsSettings | None = None
    """How to encrypt; None if connections are not. The files are read where the client is made."""
    login: Login | None = None
    """With what to authenticate; None if the client does not."""


class ProcessClient:
    """One process's connections to one cluster. Get it from ``process_client``."""

    def __init__(self, settings: ClientSettings, rng: Random) -> None:
        tls = _tls_context(settings)
        self.settings = settings
        self.rng = rng
        self._loop = asyncio.new_event_loop()
        self.cluster: Final = Cluster(
            parse_bootstrap(settings.bootstrap),
            rng=rng,
            client_id=settings.client_id,
            connect_seconds=settings.connect_seconds,
            operation_seconds=settings.request_seconds,
            tls=tls,
            login=settings.login,
        )
        self._watch = ReachabilityWatch(self.cluster)
        self._has_reached = False
        self.resources: Final = ExitStack()
        """What is released when the client is closed."""
        self._companions: dict[Callable[[ProcessClient], Any], Any] = {}

    @cached_property
    def admin(self) -> "Admin":
        """The admin client of the same cluster; imported on first use, since tasks never use it."""
        from oncelog.clients.admin.admin import Admin

        return Admin(self.cluster)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the loop until ``coroutine`` has ended, and return its result; an interruption cancels it first."""
        task = self._loop.create_task(_after_news(coroutine))
        self._watch.start(self._loop)
        try:
            return self._run_to_end(task)
        finally:
            self._watch.stop()

    def _run_to_end(self, task: "asyncio.Task[T]") -> T:
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # A signal interrupted the loop.
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task]))

    def reach(self) -> None:
        """Connect to a broker unless that was done before. Raises ``NoBrokerReachable`` after ``reach_seconds``."""
        if not self._has_reached:
            self.run(reach(self.cluster, self.settings.reach_seconds))
            self._has_reached = True

    def companion(self, make: "Callable[[ProcessClient], C]") -> C:
        """Return the one object that ``make`` made for this client; make it on the first call.

        So state of a process for one cluster is kept with its client, and needs no other module-level state.
        """
        if make not in self._companions:
            self._companions[make] = make(self)
        found: C = self._companions[make]
        return found

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that makes progress while ``run`` runs. The caller awaits or cancels it in a later ``run``."""
        return self._loop.create_task(coroutine)

    def close(self) -> None:
        """Close the connections and the loop. Spark's processes need not call it: they just end."""
        self.run(self.cluster.close())
        self._loop.close()
        self.resources.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client stays in its process: pickle its ClientSettings")


def _tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """Read the files of TLS. Raises ``UserError`` for one that this machine does not have, or that cannot be used."""
    try:
        return None if settings.tls is None else settings.tls.make_context()
    except SettingError as error:
        raise UserError(in_words_of_spark(error)) from None


async def _after_news(coroutine: Coroutine[Any, Any, T]) -> T:
    """Let the loop read its sockets, and handle what it reads, before the first step of ``coroutine``."""
    for _ in range(_TURNS_UNTIL_AN_END_IS_KNOWN):
        await asyncio.sleep(0)
    return await coroutine


_clients: Final[dict[tuple[int, ClientSettings], ProcessClient]] = {}
"""The one module-level state of the connector: by process id, since the workers of Spark are forked."""


def process_client(settings: ClientSettings) -> ProcessClient:
    """Return this process's client for these settings; make it on the first call."""
    key = (os.getpid(), settings)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = ProcessClient(settings, Random())
    return client


def close_process_clients() -> None:
    """Close this process's clients: for processes that go on after their use of the connector, unlike Spark's."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()
