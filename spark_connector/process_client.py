"""The client of one Python process that Spark started: an event loop, a cluster's connections, and no thread.

Spark calls a data source in many processes: a long-lived one for each streaming query, short ones that plan, and a pool
of workers that are forked and used again for the tasks of many batches. Each has at most one client for each
``ClientSettings``, made on first use and kept as long as the process lives, so that a micro-batch finds its connections
open. Settings travel (they are pickled into tasks), clients never do: a forked process has other keys in the cache and
makes its own. What it inherited stays untouched in there, because it shares the parent's epoll object: to close it
here would deafen the parent.

The loop runs only inside ``run``. Whatever arrives meanwhile waits in the socket, and is looked at first when the loop
runs again: an answer that came in time is not late because nobody looked, and a connection that the broker closed is
known to be closed before the next request is sent.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.tls import TlsSettings
from oncelog.spark_connector.reachability import ReachabilityWatch, reach

if TYPE_CHECKING:
    from oncelog.clients.admin.admin import Admin

C = TypeVar("C")
T = TypeVar("T")

DEFAULT_REACH_SECONDS: Final = 60.0
"""As in Kafka's clients: ``default.api.timeout.ms`` of consumers, ``max.block.ms`` of producers."""
_TURNS_UNTIL_AN_END_IS_KNOWN: Final = 3
"""Of the loop: one reads the end of a connection, the next closes it, the one after that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the cluster is and how to speak to it. Hashable, and picklable into tasks."""

    bootstrap: str
    """``host:port,host:port``."""
    client_id: str = "oncelog-spark"
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    """How long one operation is tried, over all of its attempts."""
    reach_seconds: float = DEFAULT_REACH_SECONDS
    """How long a process looks for a first broker."""
    tls: TlsSettings | None = None


class ProcessClient:
    """One process's connections to one cluster. Get it from ``process_client``."""

    def __init__(self, settings: ClientSettings, rng: Random) -> None:
        self.settings = settings
        self.rng = rng
        self._loop = asyncio.new_event_loop()
        self.cluster: Final = Cluster(
            parse_bootstrap(settings.bootstrap),
            rng=rng,
            client_id=settings.client_id,
            connect_seconds=settings.connect_seconds,
            operation_seconds=settings.request_seconds,
            tls=None if settings.tls is None else settings.tls.make_context(),
        )
        self._watch = ReachabilityWatch(self.cluster)
        self._has_reached = False
        self.resources: Final = ExitStack()
        """What is released when the client is closed."""
        self._companions: dict[Callable[[ProcessClient], Any], Any] = {}

    @cached_property
    def admin(self) -> "Admin":
        """The administrator of the same cluster; imported when wanted, since tasks never want it."""
        from oncelog.clients.admin.admin import Admin

        return Admin(self.cluster)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the loop until ``coroutine`` has ended; when interrupted, end it before the interruption goes on."""
        task = self._loop.create_task(_after_news(coroutine))
        self._watch.start(self._loop)
        try:
            return self._run_to_its_end(task)
        finally:
            self._watch.stop()

    def _run_to_its_end(self, task: "asyncio.Task[T]") -> T:
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

        So what a process remembers of a cluster lives as long as its client does, and needs no other module state.
        """
        if make not in self._companions:
            self._companions[make] = make(self)
        found: C = self._companions[make]
        return found

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Have ``coroutine`` go on whenever ``run`` runs. Whoever starts it awaits or cancels it in a later ``run``."""
        return self._loop.create_task(coroutine)

    def close(self) -> None:
        """Close the connections and the loop. Only for those who made the client themselves: processes just end."""
        self.run(self.cluster.close())
        self._loop.close()
        self.resources.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client stays in its process: pickle its ClientSettings")


async def _after_news(coroutine: Coroutine[Any, Any, T]) -> T:
    """Let the loop look at its sockets before the first step, and act on what it sees."""
    for _ in range(_TURNS_UNTIL_AN_END_IS_KNOWN):
        await asyncio.sleep(0)
    return await coroutine


_clients: Final[dict[tuple[int, ClientSettings], ProcessClient]] = {}
"""The one module-level state of the connector: by process id, since the workers of Spark are forked."""


def process_client(settings: ClientSettings) -> ProcessClient:
    """This process's client for these settings."""
    key = (os.getpid(), settings)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = ProcessClient(settings, Random())
    return client


def close_process_clients() -> None:
    """Close this process's clients: for processes that are not Spark's, and outlive their use of the connector."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()
