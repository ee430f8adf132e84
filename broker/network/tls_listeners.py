"""``TlsListeners``: TLS of a whole broker, its listeners' and that of its connections to other brokers."""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic_config import DynamicSettings
from oncelog.broker.config.listeners import WITH_SASL, Listeners, inter_broker_login, tls_listeners
from oncelog.broker.config.prefixed_settings import refuse_useless
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import StoreConfig, TlsListener
from oncelog.broker.network.listener_tls import ListenerTls
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.login_log import LoginLog
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.broker.tls.tls_transport import TlsShared
from oncelog.clients.sasl import SaslClient
from oncelog.coordinator.ports import WallClock

logger = logging.getLogger(__name__)

_ALTERED: Final = (
    "The place was altered while the broker ran: put a store that can be used there, for example a copy of the former "
    "one. `oncelog config alter broker ID --delete KEY` then takes the alteration back"
)
_WARN_SECONDS: Final = 86_400.0


class TlsListeners:
    """The listeners with TLS, by name, and ``peers``, which connections to other brokers go by."""

    def __init__(self, config: BrokerConfig, listeners: Listeners) -> None:
        """Read all files. Raises ``ConfigError``."""
        self._listeners = listeners
        login = inter_broker_login(config, listeners)
        self.peers = PeerSecurity(
            listener_name=listeners.inter_broker, sasl=None if login is None else SaslClient(login)
        )
        self.by_name: Mapping[str, ListenerTls] = {}
        found = self._of_file = tls_listeners(config, listeners)
        """As the file of settings has them."""
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

    async def begin(
        self, supervisor: Supervisor, wall_clock: WallClock, settings: DynamicSettings, logins: LoginLog
    ) -> None:
        """Begin to follow the settings, and to look whether files have changed and whether certificates end.

        No connection is made or accepted by other stores than the altered ones: raises ``ConfigError`` if these cannot
        be used. ``logins`` has what becomes of handshakes.
        """
        interval_ms = settings.current.oncelog_ssl_reload_interval_ms
        try:
            altered = self._altered(settings.current)
            for name, listener in self.by_name.items():
                await listener.begin(altered[name])
        except ConfigError as error:
            raise ConfigError(f"{error}. {_ALTERED}") from None
        for name, listener in self.by_name.items():
            listener.logins = logins
            listener.warn(wall_clock())
            supervisor.repeat(partial(_warn, listener, wall_clock), f"certificate of {name}", _WARN_SECONDS)
            if interval_ms > 0:
                supervisor.repeat(listener.reload, f"reload of certificates of {name}", interval_ms / 1000)
        settings.follow(partial(self._reconfigure, supervisor), self._why_not)

    def _altered(self, config: BrokerConfig) -> Mapping[str, TlsListener]:
        """Return the listeners of a configuration, with what clients have set. Raises ``ConfigError``."""
        found = tls_listeners(config, self._listeners)
        return {name: _marked(listener, self._of_file[name], config) for name, listener in found.items()}

    def _reconfigure(self, supervisor: Supervisor, config: BrokerConfig) -> None:
        """Have the listeners read the stores of a configuration, which may be those that they have."""
        try:
            found = self._altered(config)
        except ConfigError as error:
            logger.warning("The certificates of all listeners stay as they are: %s", error)
            return
        for name, listener in found.items():
            self.by_name[name].reconfigure(listener)
            supervisor.spawn(self.by_name[name].reload(), f"new certificates of {name}")

    def _why_not(self, config: BrokerConfig) -> str | None:
        """Return why the listeners cannot go by the stores of a configuration, or None. Reads the files."""
        try:
            refuse_useless(config, [listener.name for listener in self._listeners.bound], self.by_name)
            found = self._altered(config)
        except ConfigError as error:
            return str(error)
        refusals = (self.by_name[name].why_not(listener) for name, listener in found.items())
        return next(filter(None, refusals), None)


def _marked(listener: TlsListener, of_file: TlsListener, config: BrokerConfig) -> TlsListener:
    """Return a listener whose altered stores are marked. Raises ``ConfigError`` for one where clients write."""
    trust_store = listener.trust_store
    return replace(
        listener,
        key_store=_marked_store(listener.key_store, of_file.key_store, config),
        trust_store=None if trust_store is None else _marked_store(trust_store, of_file.trust_store, config),
    )


def _marked_store(store: StoreConfig, of_file: StoreConfig | None, config: BrokerConfig) -> StoreConfig:
    if store.location is None or (of_file is not None and store.location == of_file.location):
        return store
    place = _place_of_clients(os.path.realpath(store.location), config)
    if place is not None:
        raise ConfigError(f"{store.key}={store.location} is in {place}, whose files clients write")
    return replace(store, is_altered=True)


def _place_of_clients(path: str, config: BrokerConfig) -> str | None:
    """Return which directory a file is in if clients decide what is in its files: by records, or by what is noted."""
    data_directory = os.path.realpath(config.data_dir)
    if os.path.commonpath((data_directory, path)) == data_directory:
        return "the data directory"
    audit_file = config.oncelog_audit_file
    if audit_file and os.path.dirname(path) == os.path.dirname(os.path.realpath(audit_file)):
        return "the directory of the audit log (oncelog.audit.file)"
    return None


async def _warn(listener: ListenerTls, wall_clock: WallClock) -> None:
    listener.warn(wall_clock())
