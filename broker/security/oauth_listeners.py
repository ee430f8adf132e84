"""``OauthListeners``: what verifies the tokens of clients, for each listener with OAUTHBEARER.

A JWKS in a file is read before the broker has written anything, and refused if it cannot be used, as a certificate
is. One that is fetched is not: an issuer that does not respond must not keep a cluster from starting, whose other
listeners, mechanisms and brokers do not need it. Until the keys are there, tokens are refused, and the log says so.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, sasl_listeners
from oncelog.broker.config.oauth_config import JwksConfig, OauthListener
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.json_web_keys import MAX_JWKS_BYTES, BadJwks, load_library, parse_jwks
from oncelog.broker.security.jwks import Jwks, JwksUnavailable
from oncelog.broker.security.oauth_server import OauthServer
from oncelog.broker.security.token_verifier import (
    BadToken,
    TokenOutcome,
    TokenRules,
    read_unsecured_token,
    verify_token,
)
from oncelog.clients.http_exchange import HttpFailed, HttpRequest, exchange
from oncelog.coordinator.ports import WallClock

logger = logging.getLogger(__name__)

_FETCH_SECONDS: Final = 5.0
"""The longest time that an issuer that does not respond delays a start."""


class TokenVerifier:
    """Verifies the tokens that come to one listener."""

    def __init__(self, listener: OauthListener, wall_clock: WallClock) -> None:
        """Read the JWKS if it is a file. Raises ``ConfigError``."""
        self._name = listener.name
        self._rules = TokenRules(**listener.checks._asdict())
        self._wall_clock = wall_clock
        self._jwks = None if listener.jwks is None else _jwks(listener.jwks)
        self._warning = _warning(listener)

    def new_server(self) -> OauthServer:
        """Return the server's side of one exchange."""
        return OauthServer(self.verify, self._wall_clock)

    def verify(self, token: str) -> TokenOutcome:
        """Return what a token says, or why it is refused."""
        if self._jwks is None:
            return read_unsecured_token(token, self._rules, self._wall_clock())
        outcome = verify_token(token, self._jwks.keys, self._rules, self._wall_clock())
        if isinstance(outcome, BadToken) and outcome.lacks_key:
            self._jwks.note_missing_key()
        return outcome

    async def fetch_keys(self) -> None:
        """Fetch the keys once, unless they are there."""
        if self._jwks is not None and not self._jwks.keys:
            await self._jwks.refresh()

    def begin(self, supervisor: Supervisor) -> None:
        """Begin to keep the keys current."""
        if self._warning:
            logger.warning(self._warning)
        if self._jwks is not None:
            supervisor.supervise(self._jwks.run, f"keys of {self._name}")


class OauthListeners:
    """The verifiers of a broker, by the name of the listener."""

    def __init__(self, config: BrokerConfig, listeners: Listeners, wall_clock: WallClock) -> None:
        """Read all files. Raises ``ConfigError``."""
        self.by_name: Mapping[str, TokenVerifier] = {
            name: TokenVerifier(listener.oauth, wall_clock)
            for name, listener in sasl_listeners(config, listeners).items()
            if listener.oauth is not None
        }

    async def fetch_keys(self) -> None:
        """Fetch the keys of all listeners once, before the broker joins its cluster, where it must not be slow."""
        if self.by_name:
            await asyncio.gather(*(verifier.fetch_keys() for verifier in self.by_name.values()))

    def begin(self, supervisor: Supervisor) -> None:
        """Begin to keep the keys of all listeners current."""
        for verifier in self.by_name.values():
            verifier.begin(supervisor)


def _jwks(config: JwksConfig) -> Jwks:
    load_library()
    if not config.path:
        return Jwks(config, partial(_fetch, config.url))
    try:
        keys = parse_jwks(_content(config.path))
    except (JwksUnavailable, BadJwks) as error:
        raise ConfigError(f"{config.key}={config.url} {error}") from None
    return Jwks(config, partial(_read, config.path), keys)


async def _fetch(url: str) -> bytes:
    try:
        return await exchange(HttpRequest(url=url), seconds=_FETCH_SECONDS, max_bytes=MAX_JWKS_BYTES)
    except HttpFailed as error:
        raise JwksUnavailable(f"cannot be fetched: {error}") from None


async def _read(path: str) -> bytes:
    return await asyncio.get_running_loop().run_in_executor(None, _content, path)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_JWKS_BYTES)
    except OSError as error:
        raise JwksUnavailable(f"cannot be read: {error.strerror or error}") from None


def _warning(listener: OauthListener) -> str:
    """Return what the log says about a listener that accepts more than it should; empty if it does not."""
    if listener.jwks is None:
        return (
            f"Listener {listener.name} accepts tokens without a signature, by which every client can be every user "
            "(oncelog.sasl.oauthbearer.allow.unsecured.tokens=true)"
        )
    missing = [name for name, value in (("audience", listener.checks.audience), ("issuer", listener.checks.issuer))
               if not value]  # fmt: skip
    if missing:
        return (
            f"Listener {listener.name} accepts tokens whatever their {' and '.join(missing)} "
            "(sasl.oauthbearer.allow.unverified.…)"
        )
    if urlsplit(listener.jwks.url).scheme == "http":
        return f"{listener.jwks.key}={listener.jwks.url} is fetched without TLS: who can change it can make tokens"
    return ""
