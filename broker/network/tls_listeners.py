"""``TlsListeners``: TLS of a whole broker, its listeners' and that of its connections to other brokers."""

import ssl
from collections.abc import Mapping
from functools import partial
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import WITH_SASL, Listeners, inter_broker_login, tls_listeners
from oncelog.broker.network.listener_tls import ListenerTls
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.login_log import LoginLog
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.broker.tls.tls_transport import TlsShared
from oncelog.clients.sasl import SaslClient
from oncelog.coordinator.ports import WallClock

_WARN_SECONDS: Final = 86_400.0


class TlsListeners:
    """The listeners with TLS, by name, and ``peers``, which connections to other brokers go by."""

    def __init__(self, config: BrokerConfig, listeners: Listeners) -> None:
        """Read all files. Raises ``ConfigError``."""
        login = inter_broker_login(config, listeners)
        self.peers = PeerSecurity(
            listener_name=listeners.inter_broker, sasl=None if login is None else SaslClient(login)
        )
        self.by_name: Mapping[str, ListenerTls] = {}
        found = tls_listeners(config, listeners)
        if not found:
            return
        shared = TlsShared(
            handshake_seconds=config.oncelog_authentication_timeout_ms / 1000,
            failure_delay_seconds=config.connection_failed_authentication_delay_ms / 1000,
        )
        protocols = {listener.name: listener.security_protocol for listener in listeners.bound}
        self.by_name = {
            name: ListenerTls(
                listener,
                shared,
                has_sasl=protocols[name] in WITH_SASL,
                is_inter_broker=name == listeners.inter_broker and not config.is_embedded,
            )
            for name, listener in found.items()
        }
        between = self.by_name.get(listeners.inter_broker)
        if between is not None:
            self.peers.tls = between.peer_context
            between.on_reloaded = self._take_peer_context

    def _take_peer_context(self, context: ssl.SSLContext) -> None:
        self.peers.tls = context

    def begin(self, supervisor: Supervisor, wall_clock: WallClock, config: BrokerConfig, logins: LoginLog) -> None:
        """Begin to look whether files have changed, and whether certificates end; ``logins`` has the handshakes."""
        reload_interval_ms = config.oncelog_ssl_reload_interval_ms
        for name, listener in self.by_name.items():
            listener.logins = logins
            listener.warn(wall_clock())
            supervisor.repeat(partial(_warn, listener, wall_clock), f"certificate of {name}", _WARN_SECONDS)
            if reload_interval_ms > 0:
                supervisor.repeat(listener.reload, f"reload of certificates of {name}", reload_interval_ms / 1000)


async def _warn(listener: ListenerTls, wall_clock: WallClock) -> None:
    listener.warn(wall_clock())
