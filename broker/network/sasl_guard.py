"""``SaslGuard``: sets a gate before each connection to a listener with SASL."""

import hashlib
import random
from collections.abc import Mapping
from functools import partial
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, inter_broker_login, sasl_listeners
from oncelog.broker.config.sasl_config import SaslListener
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.network.authentication_gate import AuthenticationGate, Counts, GateSettings
from oncelog.broker.network.connection import Connection
from oncelog.broker.security.plain_server import PlainServer
from oncelog.broker.security.sasl_authenticator import Mechanism, SaslAuthenticator
from oncelog.broker.security.scram_server import ScramServer
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.broker.security.token_credentials import TokenCredentials
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.sasl.mechanisms import PLAIN, SCRAM_MECHANISMS

_FAKE_SALTS: Final = b"oncelog: salts of users that do not exist"


class ScramAccounts:
    """What clients can authenticate by with SCRAM: their own names, and delegation tokens if there are any."""

    def __init__(self, users: ScramUsers, tokens: TokenRepository | None, wall_clock: WallClock) -> None:
        self.users = users
        self.tokens = None if tokens is None else TokenCredentials(tokens, wall_clock)


class SaslGuard:
    """The gates of one listener."""

    def __init__(
        self,
        listener: SaslListener,
        config: BrokerConfig,
        *,
        accounts: ScramAccounts,
        rng: random.Random,
        salt_key: bytes,
    ) -> None:
        """Make none yet; ``salt_key`` is a secret that all brokers have (``derive_salt_key``)."""
        self._settings = GateSettings(
            failure_delay_seconds=config.connection_failed_authentication_delay_ms / 1000,
            timeout_seconds=config.oncelog_authentication_timeout_ms / 1000,
        )
        self._max_bytes = config.sasl_server_max_receive_size
        self._mechanisms = _mechanisms(listener, accounts, rng, salt_key)

    def __call__(self, connection: Connection, dispatcher: Dispatcher, counts: Counts) -> None:
        authenticator = SaslAuthenticator(self._mechanisms)
        gate = AuthenticationGate(connection, dispatcher, authenticator, self._settings, counts)
        connection.entrance.guard(gate, self._max_bytes)


def _mechanisms(
    listener: SaslListener, accounts: ScramAccounts, rng: random.Random, salt_key: bytes
) -> Mapping[str, Mechanism]:
    mechanisms = {}
    for name in listener.mechanisms:
        if name == PLAIN:
            new_server: partial[PlainServer] | partial[ScramServer] = partial(PlainServer, listener.plain_users)
        else:
            scram = SCRAM_MECHANISMS[name]
            find = partial(accounts.users.find, scram)
            new_server = partial(ScramServer, scram, find, accounts.tokens, rng=rng, fake_salt_key=salt_key)
        mechanisms[name] = Mechanism(new_server, listener.max_reauth_ms[name])
    return mechanisms


def sasl_guards(
    config: BrokerConfig, listeners: Listeners, accounts: ScramAccounts, *, cluster_id: str, rng: random.Random
) -> dict[str, SaslGuard]:
    """Return the guard of each listener with SASL, by its name."""
    salt_key = derive_salt_key(cluster_id, inter_broker_login(config, listeners))
    return {
        name: SaslGuard(listener, config, accounts=accounts, rng=rng, salt_key=salt_key)
        for name, listener in sasl_listeners(config, listeners).items()
    }


def derive_salt_key(cluster_id: str, login: SaslLogin | None) -> bytes:
    """Return the key of the salts of users that do not exist: the same on every broker, and after a restart.

    It is as secret as the brokers' own password. Without one it is as secret as the cluster id, which clients that are
    authenticated can read; these could learn which names have a credential.
    """
    password = "" if login is None else login.password
    return hashlib.sha256(b"\0".join((_FAKE_SALTS, cluster_id.encode(), password.encode()))).digest()
