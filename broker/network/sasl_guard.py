"""``SaslGuard``: sets a gate before each connection to a listener with SASL."""

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, inter_broker_login, sasl_listeners
from oncelog.broker.config.sasl_config import SaslListener
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.network.authentication_gate import AuthenticationGate, Counts, GateSettings
from oncelog.broker.network.connection import Connection
from oncelog.broker.security.login_log import LoginLog
from oncelog.broker.security.oauth_listeners import OauthListeners, TokenVerifier
from oncelog.broker.security.plain_server import PlainServer
from oncelog.broker.security.sasl_authenticator import Mechanism, SaslAuthenticator
from oncelog.broker.security.sasl_server import SaslServer
from oncelog.broker.security.scram_server import ScramServer
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.broker.security.token_credentials import TokenCredentials
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.sasl.login import Login, OauthLogin, SaslLogin
from oncelog.protocol.sasl.mechanisms import PLAIN, SCRAM_MECHANISMS
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER

_FAKE_SALTS: Final = b"oncelog: salts of users that do not exist"


class SaslHost(Protocol):
    """The broker, as the gates of its listeners see it."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def listeners(self) -> Listeners: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def scram_users(self) -> ScramUsers: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def tokens(self) -> TokenRepository | None: ...
    @property
    def wall_clock(self) -> WallClock: ...


class SaslGuard:
    """The gates of one listener."""

    def __init__(
        self,
        listener: SaslListener,
        broker: SaslHost,
        *,
        tokens: TokenVerifier | None,
        salt_key: bytes,
        logins: LoginLog,
    ) -> None:
        """Make none yet; ``salt_key`` is a secret that all brokers have (``derive_salt_key``)."""
        config = broker.config
        self._settings = GateSettings(
            failure_delay_seconds=config.connection_failed_authentication_delay_ms / 1000,
            timeout_seconds=config.oncelog_authentication_timeout_ms / 1000,
            logins=logins,
        )
        self._max_bytes = config.sasl_server_max_receive_size
        self._mechanisms = {
            name: Mechanism(_new_server(name, listener, broker, tokens, salt_key), listener.max_reauth_ms[name])
            for name in listener.mechanisms
        }

    def __call__(self, connection: Connection, dispatcher: Dispatcher, counts: Counts) -> None:
        authenticator = SaslAuthenticator(self._mechanisms)
        gate = AuthenticationGate(connection, dispatcher, authenticator, self._settings, counts)
        connection.entrance.guard(gate, self._max_bytes)


def _new_server(
    mechanism: str, listener: SaslListener, broker: SaslHost, tokens: TokenVerifier | None, salt_key: bytes
) -> Callable[[], SaslServer]:
    """Return what begins an exchange of a mechanism."""
    if mechanism == PLAIN:
        return partial(PlainServer, listener.plain_users)
    if mechanism == OAUTHBEARER:
        assert tokens is not None
        return tokens.new_server
    scram = SCRAM_MECHANISMS[mechanism]
    find = partial(broker.scram_users.find, scram)
    delegated = None if broker.tokens is None else TokenCredentials(broker.tokens, broker.wall_clock)
    return partial(ScramServer, scram, find, delegated, rng=broker.rng, fake_salt_key=salt_key)


def sasl_guards(broker: SaslHost, oauth: OauthListeners, logins: LoginLog) -> dict[str, SaslGuard]:
    """Return the guard of each listener with SASL, by its name; ``logins`` has what becomes of its clients."""
    salt_key = derive_salt_key(broker.cluster_id, inter_broker_login(broker.config, broker.listeners))
    return {
        name: SaslGuard(listener, broker, tokens=oauth.by_name.get(name), salt_key=salt_key, logins=logins)
        for name, listener in sasl_listeners(broker.config, broker.listeners).items()
    }


def derive_salt_key(cluster_id: str, login: Login | None) -> bytes:
    """Return the key of the salts of users that do not exist: the same on every broker, and after a restart.

    It is as secret as the brokers' own password, or client secret. Without one it is as secret as the cluster id, which
    clients that are authenticated can read; these could learn which names have a credential.
    """
    match login:
        case SaslLogin():
            password = login.password
        case OauthLogin():
            password = login.client_secret
        case None:
            password = ""
    return hashlib.sha256(b"\0".join((_FAKE_SALTS, cluster_id.encode(), password.encode()))).digest()
