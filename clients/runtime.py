"""The runtime of one client: what every part of a producer, consumer or admin client works with."""

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.retry import Backoff
from oncelog.protocol.sasl.login import Login

C = TypeVar("C")


class ConnectionSettings(Protocol):
    """The settings of connections, which every client has under these names."""

    @property
    def bootstrap(self) -> str:
        """Return the brokers to connect to first, as ``host:port,host:port``."""

    @property
    def client_id(self) -> str:
        """Return the name that brokers log."""

    @property
    def connect_timeout_ms(self) -> int:
        """Return the maximum duration of one connection attempt, in milliseconds."""

    @property
    def request_timeout_ms(self) -> int:
        """Return the maximum duration of one operation on the cluster, in milliseconds."""

    @property
    def login(self) -> Login | None:
        """Return with what the client authenticates; None if it does not."""

    def make_tls_context(self) -> ssl.SSLContext | None:
        """Read the files of TLS; None if the client does not speak it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRuntime:
    """The cluster, the tasks and the sources of time and randomness of one client, handed to each of its parts.

    Monotonic time is that of the running event loop.
    """

    cluster: Cluster
    tasks: BackgroundTasks
    backoff: Backoff
    rng: Random
    wall_clock: Callable[[], int]
    """Returns milliseconds since the epoch."""


def new_cluster(settings: ConnectionSettings, rng: Random) -> Cluster:
    """Return a cluster with these settings, without a connection yet.

    Raises ``ValueError`` for a bad ``bootstrap``, and for files of TLS that cannot be used.
    """
    return Cluster(
        parse_bootstrap(settings.bootstrap),
        rng=rng,
        client_id=settings.client_id,
        connect_seconds=settings.connect_timeout_ms / 1000,
        operation_seconds=settings.request_timeout_ms / 1000,
        tls=settings.make_tls_context(),
        login=settings.login,
    )


def system_clock_ms() -> int:
    """Return the time of the system's clock, in milliseconds since the epoch: the default of ``wall_clock``."""
    return time.time_ns() // 1_000_000


def client_config(config: object, kind: type[C], settings: Mapping[str, object]) -> C:
    """Return the configuration of a client from its arguments.

    ``config`` is a configuration, or an address with ``settings`` beside it; None if ``bootstrap`` is among them.
    Raises ``TypeError`` for a ``config`` of another type than ``kind``, settings beside it, and unknown or missing
    settings.
    """
    make: Callable[..., C] = kind
    if isinstance(config, str):
        if "bootstrap" in settings:
            raise TypeError("the brokers to connect to are given twice: leave out bootstrap, or the first argument")
        return make(bootstrap=config, **settings)
    if config is None and settings:
        return make(**settings)
    if not isinstance(config, kind):
        name = type(config).__name__
        raise TypeError(f"pass a {kind.__name__} or the brokers to connect to as 'host:port,host:port', not {name}")
    if settings:
        raise TypeError(f"set {', '.join(settings)} in the {kind.__name__}, not beside it")
    return config
