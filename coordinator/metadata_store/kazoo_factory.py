"""``make_client``: a kazoo client for one session, with two corrections of its handshake with a server."""

from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from oncelog.coordinator.metadata_store.kazoo_log import KazooLog
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials

_HANDSHAKES_PER_TIMEOUT: Final = 9
"""Of the time-out that is requested; the server may grant half of that."""
_RECONNECT: Final = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=1.0)


def make_client(
    hosts: str,
    timeout_seconds: float,
    credentials: SessionCredentials | None,
    log: KazooLog,
    on_granted_timeout: Callable[[float], None],
) -> KazooClient:
    """Return a client that is not started.

    ``timeout_seconds``: the session time-out to request. ``credentials``: of a session to take over.
    ``on_granted_timeout`` gets the session time-out in seconds that a server granted, in kazoo's thread.
    """
    options = {"client_id": credentials, "connection_retry": _RECONNECT, "logger": log}
    client = KazooClient(hosts=hosts, timeout=timeout_seconds, **options)
    _report_granted_timeout(client, on_granted_timeout)
    _bound_handshakes(client, timeout_seconds / _HANDSHAKES_PER_TIMEOUT)
    return client


def _report_granted_timeout(client: KazooClient, report: Callable[[float], None]) -> None:
    """Intercept the granted time-out: kazoo passes it to its own connection only, two thirds of it, in ms."""
    connection = client._connection
    connect = connection._connect

    def connect_and_report(*arguments: Any) -> tuple[float, float]:
        read_timeout, connect_timeout = connect(*arguments)
        report(read_timeout * 1.5 / 1000)
        return read_timeout, connect_timeout

    connection._connect = connect_and_report


def _bound_handshakes(client: KazooClient, seconds: float) -> None:
    """Bound the wait for a server's first response, for which kazoo waits a whole session time-out.

    A server that has just been started accepts connections before it serves, and may never respond on those. A
    session that waits for such a response has expired before the second attempt.
    """
    connection, handler = client._connection, client.handler
    invoke, create_connection = connection._invoke, handler.create_connection

    def invoke_in_time(timeout: float, *arguments: Any, **named: Any) -> Any:
        return invoke(min(timeout, seconds), *arguments, **named)

    def connect_in_time(*arguments: Any, timeout: float, **named: Any) -> Any:
        return create_connection(*arguments, timeout=min(timeout, seconds), **named)

    connection._invoke, handler.create_connection = invoke_in_time, connect_in_time
