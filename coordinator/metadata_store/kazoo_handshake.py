"""``KazooHandshake``: how a kazoo client connects to a server, from TCP to the login, in place of kazoo's own steps.

* Each step has an end in time. A server that has just been started accepts connections before it serves, and may never
  respond on those; kazoo waits for it a whole session time-out, and then the session has expired.
* TLS is by a channel that is given, not by the few options that kazoo has.
* A server that this client cannot work with, as both are configured, is reported with the reason. kazoo would try again
  for ever, and say that a connection was dropped.
* The granted session time-out is reported, which kazoo keeps to itself.

A session that there was ends when every server has refused its login: each attempt prolongs it, and its ephemerals
would outlive a broker that cannot do anything any more.

Everything here runs in kazoo's thread.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped

from oncelog.coordinator.metadata_store.kazoo_login import log_in
from oncelog.coordinator.metadata_store.server_port import Address, speaks_plain_text, speaks_tls
from oncelog.coordinator.metadata_store.zookeeper_security import ServerRefused, ZooKeeperSecurity

_LOOK_SECONDS: Final = 1.0
_MOST_BREAKS: Final = 1
"""Logins in a row that may break off, as they do at a server that is being stopped."""
_NO_TLS: Final = (
    "does not speak TLS: name its secureClientPort in zookeeper.connect, or zookeeper.ssl.client.enable=false"
)
_ONLY_TLS: Final = "speaks TLS: set zookeeper.ssl.client.enable=true, or name its clientPort in zookeeper.connect"
_ENDED: Final = (
    "the server ended it without saying why: does it require a certificate of the broker "
    "(zookeeper.ssl.keystore.location), and is there a version of TLS that both speak "
    "(zookeeper.ssl.enabled.protocols)?"
)
_BREAKS_OFF: Final = (
    "breaks off the login of oncelog.zookeeper.sasl.jaas.config: see its JAAS file, and its log for the reason"
)


class HandshakeReports(NamedTuple):
    """What is called, in kazoo's thread."""

    granted_timeout: Callable[[float], None]
    """With the session time-out in seconds that a server has granted."""
    refused: Callable[[str], None]
    """With why a server and this client cannot work together."""


class KazooHandshake:
    """The steps of one client, which it takes from now on."""

    def __init__(
        self, client: KazooClient, security: ZooKeeperSecurity, seconds: float, reports: HandshakeReports
    ) -> None:
        """Take the place of kazoo's steps; each has so many seconds."""
        connection, handler = client._connection, client.handler
        self._security = security
        self._seconds = seconds
        self._reports = reports
        self._host = ""
        self._address: Address = ("", 0)
        self._hosts = len(set(client.hosts))
        self._breaks = 0
        """Logins in a row that broke off."""
        self._refusing: set[tuple[str, int]] = set()
        """The servers that have refused the login since one took it."""
        self._has_session = False
        self._timeouts = handler.timeout_exception
        self._kazoo_connect, connection._connect = connection._connect, self._connect
        self._kazoo_invoke, connection._invoke = connection._invoke, self._request_session
        self._connection, connection._authenticate_with_sasl = connection, self._log_in
        self._kazoo_open, handler.create_connection = handler.create_connection, self._open
        self._kazoo_select, handler.select = handler.select, self._select

    def _connect(self, host: str, address: str, port: int) -> tuple[float, float]:
        """Do all steps."""
        self._host, self._address = host, (address, port)
        try:
            read_timeout, connect_timeout = self._kazoo_connect(host, address, port)
        except ServerRefused as refused:
            raise ConnectionDropped(self._report(str(refused))) from None
        self._breaks = 0
        self._refusing.clear()
        self._has_session = True
        self._reports.granted_timeout(read_timeout * 1.5 / 1000)  # kazoo returns two thirds of it, in milliseconds.
        return read_timeout, connect_timeout

    def _report(self, reason: str) -> str:
        text = f"{self._host}:{self._address[1]} {reason}"
        self._reports.refused(text)
        return text

    # TCP and TLS

    def _open(self, *arguments: Any, timeout: float, **named: Any) -> Any:
        """Open a connection, with TLS if there is to be any."""
        connection = self._kazoo_open(*arguments, timeout=min(timeout, self._seconds), **named)
        if self._security.tls is None:
            return connection
        try:
            return self._security.tls.secure(connection, self._host)
        except (ssl.SSLEOFError, ConnectionError):
            if speaks_plain_text(self._address, min(self._seconds, _LOOK_SECONDS)):
                raise ServerRefused(_NO_TLS) from None
            raise ConnectionDropped(_ENDED) from None
        finally:
            connection.close()  # TLS has taken its descriptor over, unless it failed.

    def _select(self, readers: Sequence[Any], writers: Any, errors: Any, timeout: float | None) -> Any:
        """Wait as kazoo does, but not for what TLS has received already: the kernel does not know of that."""
        received = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not received:
            return self._kazoo_select(readers, writers, errors, timeout)
        ready, *others = self._kazoo_select(readers, writers, errors, 0)
        return [*received, *(each for each in ready if each not in received)], *others

    # ZooKeeper

    def _request_session(self, timeout: float, *arguments: Any, **named: Any) -> Any:
        """Request the session, the first that is sent."""
        try:
            return self._kazoo_invoke(min(timeout, self._seconds), *arguments, **named)
        except ConnectionDropped as dropped:
            cause, tls = dropped.__context__, self._security.tls
            if tls is None:
                if speaks_tls(self._address, min(self._seconds, _LOOK_SECONDS)):
                    raise ServerRefused(_ONLY_TLS) from None
                raise
            if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
                raise ServerRefused(tls.explain(cause)) from None
            raise ConnectionDropped(_ENDED) from None

    def _log_in(self, _: str, timeout: float) -> None:
        """Authenticate this client and the server by SASL. kazoo calls this if it has options for SASL."""
        login = self._security.login
        assert login is not None, "kazoo has options for SASL only with a login"
        try:
            log_in(self._connection, login, min(timeout, self._seconds))
        except ServerRefused as refused:
            raise self._failed_login(str(refused)) from None
        except (ConnectionDropped, self._timeouts):
            self._breaks += 1
            if self._breaks > _MOST_BREAKS:
                raise self._failed_login(_BREAKS_OFF) from None
            raise

    def _failed_login(self, reason: str) -> AuthFailedError | ConnectionDropped:
        """Return what has kazoo try another server, or ends the session if there was one and no server is left."""
        text = self._report(reason)
        self._refusing.add((self._host, self._address[1]))
        ends_session = self._has_session and len(self._refusing) == self._hosts
        return AuthFailedError(text) if ends_session else ConnectionDropped(text)
