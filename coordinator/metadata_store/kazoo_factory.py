"""``make_client``: a kazoo client for one session, which connects by ``KazooHandshake``."""

from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from oncelog.coordinator.metadata_store.kazoo_handshake import HandshakeReports, KazooHandshake
from oncelog.coordinator.metadata_store.kazoo_log import KazooLog
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity

_HANDSHAKES_PER_TIMEOUT: Final = 9
"""Of the time-out that is requested; the server may grant half of that."""
_RECONNECT: Final = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=1.0)


def make_client(
    hosts: str,
    timeout_seconds: float,
    credentials: SessionCredentials | None,
    security: ZooKeeperSecurity,
    log: KazooLog,
    reports: HandshakeReports,
) -> KazooClient:
    """Return a client that is not started.

    ``timeout_seconds``: the session time-out to request. ``credentials``: of a session to take over.
    """
    options: dict[str, Any] = {"client_id": credentials, "connection_retry": _RECONNECT, "logger": log}
    if security.login is not None:
        options["sasl_options"] = {}  # That there are any has kazoo log in.
    client = KazooClient(hosts=hosts, timeout=timeout_seconds, **options)
    KazooHandshake(client, security, timeout_seconds / _HANDSHAKES_PER_TIMEOUT, reports)
    return client
