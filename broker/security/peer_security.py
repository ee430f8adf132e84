"""``PeerSecurity``: how this broker and the others prove to each other who they are."""

import ssl
from dataclasses import dataclass

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, inter_broker_login, tls_listeners
from oncelog.broker.security.tls_contexts import client_context, parse_certificates, read_contents
from oncelog.clients.sasl import SaslClient


@dataclass(slots=True, kw_only=True, eq=False)
class PeerSecurity:
    """What a connection to another broker needs. It is read when one is made: certificates may be replaced."""

    listener_name: str = ""
    """The listener of other brokers that is connected to."""
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    sasl: SaslClient | None = None
    """With what this broker authenticates; None: it need not."""


def read_peer_security(config: BrokerConfig, listeners: Listeners) -> PeerSecurity:
    """Return what a broker with these settings needs to connect to another one. Raises ``ConfigError``."""
    login = inter_broker_login(config, listeners)
    listener = tls_listeners(config, listeners).get(listeners.inter_broker)
    tls = None if listener is None else client_context(listener, parse_certificates(listener, read_contents(listener)))
    return PeerSecurity(
        listener_name=listeners.inter_broker, tls=tls, sasl=None if login is None else SaslClient(login)
    )
