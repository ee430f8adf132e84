"""``ListenerTls``: the certificates of one listener, the transports of its connections, and who their clients are.

New connections have the certificates that were read last, those that there are keep theirs. ``reload`` reads the files
again, which may be others than before (``reconfigure``). What it finds replaces the former certificates if a start
would accept it and, as in Kafka, if it is of the same name: another distinguished name, or fewer alternative names,
would have clients meet a broker that they do not know (``ssl.allow.dn.changes``, ``ssl.allow.san.changes``).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import TlsListener
from oncelog.broker.dispatch.request import Principal
from oncelog.broker.network.connection import Connection
from oncelog.broker.security.login_log import TLS, LoginLog
from oncelog.broker.security.own_certificate import OwnCertificate, why_not_replace
from oncelog.broker.security.principal_mapping import PrincipalMapping
from oncelog.broker.security.tls_contexts import (
    StoreContents,
    client_context,
    parse_certificates,
    read_contents,
    require_own_trust,
    server_context,
)
from oncelog.broker.tls.tls_transport import TlsShared, TlsTransport
from oncelog.protocol.tls.distinguished_name import subject_of

logger = logging.getLogger(__name__)


class Counts(Protocol):
    """What the handshakes of one listener count."""

    successful_authentications: int
    failed_authentications: int


class ListenerTls:
    """Implements ``oncelog.broker.network.socket_server.Secure``."""

    def __init__(self, listener: TlsListener, shared: TlsShared, *, has_sasl: bool, is_inter_broker: bool) -> None:
        """Read the files. Raises ``ConfigError``."""
        self._shared = shared
        self._has_sasl = has_sasl
        self._is_inter_broker = is_inter_broker
        self._mapping = PrincipalMapping(listener.mapping_rules)
        self._wanted = listener
        """What is to be read next."""
        self._served = _read(listener, read_contents(listener), is_inter_broker=is_inter_broker)
        self._refused: tuple[TlsListener, StoreContents] | None = None
        """What was not accepted last, so that it is said once."""
        self.logins = LoginLog()
        """What becomes of handshakes."""
        self.on_reloaded: Callable[[ssl.SSLContext], None] = _ignore_context

    @property
    def peer_context(self) -> ssl.SSLContext | None:
        """For connections to the same listener of other brokers; None if they have another."""
        return self._served.peer_context

    def __call__(self, connection: Connection, counts: Counts) -> TlsTransport:
        on_secured = partial(self._identify, connection, counts)
        on_failed = partial(self._note_failure, connection)
        return TlsTransport(connection, self._served.context, self._shared, on_secured, on_failed)

    def _identify(self, connection: Connection, counts: Counts, certificate: bytes | None) -> str:
        """Note who a client is whose handshake is done; returns why it is refused, if it is."""
        if self._has_sasl:
            return ""
        if certificate is not None:
            try:
                subject = subject_of(certificate)
            except ValueError as error:
                counts.failed_authentications += 1
                return f"its certificate has a subject that cannot be read: {error}"
            user = self._mapping.user_of(subject)
            if not user:
                counts.failed_authentications += 1
                return f"no rule of ssl.principal.mapping.rules makes a user of its certificate's subject {subject}"
            connection.info.principal = Principal("User", user)
        counts.successful_authentications += 1
        self.logins.succeeded(connection.info, TLS)
        logger.debug("%s is %s, by its certificate", connection.info, connection.info.principal)
        return ""

    def _note_failure(self, connection: Connection, reason: str) -> None:
        self.logins.failed(connection.info, TLS, reason)

    def warn(self, now_ms: int) -> None:
        """Write a line if the listener's own certificate has expired or soon will."""
        listener, own = self._served.listener, self._served.own
        text = own.why_renew(now_ms)
        if text:
            logger.warning("%s of listener %s: %s", listener.key_store.key, listener.name, text)

    async def begin(self, listener: TlsListener) -> None:
        """Go by these stores from the first connection on. Raises ``ConfigError``."""
        if listener == self._served.listener:
            return
        contents = await asyncio.get_running_loop().run_in_executor(None, read_contents, listener)
        self._wanted, self._served = listener, _read(listener, contents, is_inter_broker=self._is_inter_broker)
        if self._served.peer_context is not None:
            self.on_reloaded(self._served.peer_context)

    def why_not(self, listener: TlsListener) -> str | None:
        """Return why the listener cannot go on with these settings, or None. Reads the files."""
        try:
            self._replacement(listener, read_contents(listener))
        except ConfigError as error:
            return str(error)
        return None

    def reconfigure(self, listener: TlsListener) -> None:
        """Read these stores from now on, first when ``reload`` is called next."""
        self._wanted = listener

    async def reload(self) -> None:
        """Read the files again, and go by them if they have changed and are acceptable."""
        listener = self._wanted
        loop = asyncio.get_running_loop()
        try:
            contents = await loop.run_in_executor(None, read_contents, listener)
        except ConfigError as error:
            logger.warning("The certificates of listener %s stay as they are: %s", listener.name, error)
            return
        found = (listener, contents)
        if listener is not self._wanted or found in ((self._served.listener, self._served.contents), self._refused):
            return
        try:
            served = self._replacement(listener, contents)
        except ConfigError as error:
            self._refused = found
            logger.warning("The certificates of listener %s stay as they are: %s", listener.name, error)
            return
        self._served, self._refused = served, None
        if served.peer_context is not None:
            self.on_reloaded(served.peer_context)
        logger.info("Listener %s has new certificates, valid until %s", listener.name, served.own.not_after_text)

    def _replacement(self, listener: TlsListener, contents: StoreContents) -> "_Served":
        """Return what takes the place of what is served now. Raises ``ConfigError``."""
        new = _read(listener, contents, is_inter_broker=self._is_inter_broker)
        why_not_replace(listener, self._served.own, new.own)
        return new


class _Served(NamedTuple):
    """What a listener has for new connections, and where it is from."""

    listener: TlsListener
    contents: StoreContents
    own: OwnCertificate
    context: ssl.SSLContext
    peer_context: ssl.SSLContext | None


def _read(listener: TlsListener, contents: StoreContents, *, is_inter_broker: bool) -> _Served:
    """Make what a listener needs of the contents of its stores. Raises ``ConfigError``."""
    certificates = parse_certificates(listener, contents)
    context = server_context(listener, certificates)
    if is_inter_broker:
        require_own_trust(listener, certificates)
    return _Served(
        listener=listener,
        contents=contents,
        own=OwnCertificate.parse(certificates.own.certificates[0]),
        context=context,
        peer_context=client_context(listener, certificates) if is_inter_broker else None,
    )


def _ignore_context(context: ssl.SSLContext) -> None:
    """Do nothing: no peer connects by this listener."""
