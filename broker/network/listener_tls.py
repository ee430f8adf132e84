"""``ListenerTls``: the certificates of one listener, the transports of its connections, and who their clients are.

New connections have the certificates that were read last, those that there are keep theirs. ``reload`` reads the files
again. What it finds replaces the former certificates if a start would accept it and, as in Kafka, if it is of the same
name: another distinguished name, or fewer alternative names, would have clients meet a broker that they do not know
(``ssl.allow.dn.changes``, ``ssl.allow.san.changes``).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import TlsListener
from oncelog.broker.dispatch.request import Principal
from oncelog.broker.network.connection import Connection
from oncelog.broker.security.own_certificate import OwnCertificate, why_not_replace
from oncelog.broker.security.principal_mapping import PrincipalMapping
from oncelog.broker.security.tls_contexts import (
    client_context,
    parse_certificates,
    read_contents,
    server_context,
)  # fmt: skip
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
        self._listener = listener
        self._shared = shared
        self._has_sasl = has_sasl
        self._mapping = PrincipalMapping(listener.mapping_rules)
        self._contents = read_contents(listener)
        self._refused = self._contents
        """The last contents that were not accepted, so that each is said once."""
        certificates = parse_certificates(listener, self._contents)
        self._context = server_context(listener, certificates)
        self.peer_context = client_context(listener, certificates) if is_inter_broker else None
        """For connections to the same listener of other brokers."""
        self._own = OwnCertificate.parse(certificates.own.certificates[0])
        self.on_reloaded: Callable[[ssl.SSLContext], None] = _ignore_context

    def __call__(self, connection: Connection, counts: Counts) -> TlsTransport:
        on_secured = partial(self._identify, connection, counts)
        return TlsTransport(connection, self._context, self._shared, on_secured)

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
        logger.debug("%s is %s, by its certificate", connection.info, connection.info.principal)
        return ""

    def warn(self, now_ms: int) -> None:
        """Write a line if the listener's own certificate has expired or soon will."""
        text = self._own.why_renew(now_ms)
        if text:
            logger.warning("%s of listener %s: %s", self._listener.key_store.key, self._listener.name, text)

    async def reload(self) -> None:
        """Read the files again, and go by them if they have changed and are acceptable."""
        loop = asyncio.get_running_loop()
        try:
            contents = await loop.run_in_executor(None, read_contents, self._listener)
        except ConfigError as error:
            logger.warning("The certificates of listener %s stay as they are: %s", self._listener.name, error)
            return
        if contents in (self._contents, self._refused):
            return
        try:
            certificates = parse_certificates(self._listener, contents)
            own = OwnCertificate.parse(certificates.own.certificates[0])
            why_not_replace(self._listener, self._own, own)
            context = server_context(self._listener, certificates)
            peer_context = None if self.peer_context is None else client_context(self._listener, certificates)
        except ConfigError as error:
            self._refused = contents
            logger.warning("The certificates of listener %s stay as they are: %s", self._listener.name, error)
            return
        self._contents = self._refused = contents
        self._own, self._context = own, context
        if peer_context is not None:
            self.peer_context = peer_context
            self.on_reloaded(peer_context)
        logger.info("Listener %s has new certificates, valid until %s", self._listener.name, own.not_after_text)


def _ignore_context(context: ssl.SSLContext) -> None:
    """Do nothing: no peer connects by this listener."""
