"""``PeerSecurity``: how this broker and the others prove to each other who they are."""

import logging
import ssl
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, inter_broker_login, tls_listeners
from oncelog.broker.security.tls_contexts import client_context, parse_certificates, read_contents
from oncelog.clients.errors import AuthenticationFailed, ClientError, TlsFailed
from oncelog.clients.sasl import SaslClient

logger = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 60.0
"""Between two lines about the same broker: every lane to it tries again and again."""
_OF_SASL: Final = "the login in sasl.jaas.config and sasl.mechanism.inter.broker.protocol"
_OF_TLS: Final = "ssl.keystore.location and ssl.truststore.location"


@dataclass(slots=True, kw_only=True, eq=False)
class PeerSecurity:
    """What a connection to another broker needs. It is read when one is made: certificates may be replaced."""

    listener_name: str = ""
    """The listener of other brokers that is connected to."""
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    sasl: SaslClient | None = None
    """With what this broker authenticates; None: it need not."""
    _noted_at: dict[int, float] = field(default_factory=dict)
    """When a broker was last reported, by its id."""

    def note_failure(self, broker_id: int, error: ClientError, now: float) -> None:
        """Warn, now and then, that a connection to a broker was not secured; other errors are none of that.

        ``now``: seconds, of any clock.
        """
        if not isinstance(error, (AuthenticationFailed, TlsFailed)):
            return
        if now - self._noted_at.get(broker_id, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        self._noted_at[broker_id] = now
        settings = _OF_SASL if isinstance(error, AuthenticationFailed) else _OF_TLS
        logger.warning(
            "This broker and broker %d do not accept each other: %s. See %s, for listener %s at both",
            broker_id,
            error,
            settings,
            self.listener_name,
        )


def read_peer_security(config: BrokerConfig, listeners: Listeners) -> PeerSecurity:
    """Return what a broker with these settings needs to connect to another one. Raises ``ConfigError``."""
    login = inter_broker_login(config, listeners)
    listener = tls_listeners(config, listeners).get(listeners.inter_broker)
    tls = None if listener is None else client_context(listener, parse_certificates(listener, read_contents(listener)))
    return PeerSecurity(
        listener_name=listeners.inter_broker, tls=tls, sasl=None if login is None else SaslClient(login)
    )
