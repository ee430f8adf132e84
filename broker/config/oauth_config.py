"""OAUTHBEARER as the settings have it: which tokens a listener accepts, and with what this broker gets its own.

The settings of ``oncelog.broker.config.oauth_settings`` are looked for in the scopes of
``oncelog.broker.config.scopes``. What would accept tokens without a check is refused at the start, unless a setting
requests it by name: Kafka's listener without a JWKS accepts unsigned tokens. No message contains a secret.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from oncelog.broker.config import scopes
from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.oauth_settings import OauthSettings
from oncelog.broker.config.settings import ConfigError, Kind, settings_of
from oncelog.protocol.sasl.login import OauthLogin, parse_oauth_login
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER

_KEYS: Final = tuple(key for key in settings_of(OauthSettings) if "sasl.oauthbearer." in key)
_PREFIXED: Final = re.compile(
    rf"(?P<listener>listener\.name\.[^.]+\.)?(?P<mechanism>oauthbearer\.)?(?P<key>{'|'.join(map(re.escape, _KEYS))})"
)
_JAAS: Final = "sasl.jaas.config"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
_ANY_AUDIENCE: Final = "sasl.oauthbearer.allow.unverified.audience"
_ANY_ISSUER: Final = "sasl.oauthbearer.allow.unverified.issuer"
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_FILES: Final = "oncelog.sasl.oauthbearer.allow.files"
_UNSECURED: Final = "oncelog.sasl.oauthbearer.allow.unsecured.tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class JwksConfig:
    """Where the keys of a listener come from, and how often."""

    key: str
    """The setting that says where, for messages."""
    url: str
    path: str
    """Of a file; empty: the JWKS is fetched by HTTP."""
    refresh_seconds: float
    backoff_seconds: float
    max_backoff_seconds: float


class TokenChecks(NamedTuple):
    """What a token must say."""

    audience: tuple[str, ...]
    issuer: str
    clock_skew_seconds: int
    subject_claim: str
    scope_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthListener:
    """Which tokens one listener accepts."""

    name: str
    jwks: JwksConfig | None
    """None: tokens have no signature, as a setting says."""
    checks: TokenChecks


def match_prefixed(key: str) -> re.Match[str] | None:
    """Return the parts ``listener``, ``mechanism`` and ``key`` of a setting of one of them; None if it is none."""
    match = _PREFIXED.fullmatch(key)
    return match if match is not None and (match["listener"] or match["mechanism"]) else None


def is_secret(key: str) -> bool:
    """Return whether the value of a prefixed key must not be shown."""
    match = _PREFIXED.fullmatch(key)
    return match is not None and BROKER_SETTINGS[match["key"]].kind is Kind.PASSWORD


def parse_oauth_listener(config: BrokerConfig, name: str) -> OauthListener:
    """Read the settings of a listener with OAUTHBEARER. Raises ``ConfigError``."""
    checks = TokenChecks(
        audience=_value(config, name, _AUDIENCE),
        issuer=_value(config, name, _ISSUER) or "",
        clock_skew_seconds=_value(config, name, "sasl.oauthbearer.clock.skew.seconds"),
        subject_claim=_value(config, name, "sasl.oauthbearer.sub.claim.name"),
        scope_claim=_value(config, name, "sasl.oauthbearer.scope.claim.name"),
    )
    url = _value(config, name, _JWKS)
    if _value(config, name, _UNSECURED):
        if url:
            raise ConfigError(f"{_key(config, name, _UNSECURED)}=true, and {_key(config, name, _JWKS)} too: drop one")
        return OauthListener(name=name, jwks=None, checks=checks)
    if not url:
        raise ConfigError(
            f"{OAUTHBEARER} is enabled on listener {name} without keys that verify tokens: set "
            f"{scopes.narrow(name, OAUTHBEARER, _JWKS)} to the JWKS of the issuer"
        )
    _require_check(config, name, _AUDIENCE, _ANY_AUDIENCE)
    _require_check(config, name, _ISSUER, _ANY_ISSUER)
    key = _key(config, name, _JWKS)
    backoff_ms = _value(config, name, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")
    max_backoff_ms = _value(config, name, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")
    jwks = JwksConfig(
        key=key,
        url=url,
        path=_path(config, name, key, url),
        refresh_seconds=_value(config, name, "sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        backoff_seconds=backoff_ms / 1000,
        max_backoff_seconds=max(backoff_ms, max_backoff_ms) / 1000,
    )
    return OauthListener(name=name, jwks=jwks, checks=checks)


def parse_oauth_login_of_broker(config: BrokerConfig, name: str) -> OauthLogin:
    """Return with what this broker gets its token for the others' listener of that name. Raises ``ConfigError``."""
    key, url = _key(config, name, _ENDPOINT), _value(config, name, _ENDPOINT)
    if not url:
        raise ConfigError(
            f"{scopes.narrow(name, OAUTHBEARER, _ENDPOINT)} is missing: this broker needs a token for the others; set "
            "it to the token endpoint of the issuer"
        )
    path = _path(config, name, key, url)
    jaas_key, jaas = scopes.find(config, name, OAUTHBEARER, _JAAS)
    try:
        login = parse_oauth_login(
            jaas,
            token_endpoint_url=url,
            client_id=_value(config, name, _CLIENT_ID),
            client_secret=_value(config, name, _CLIENT_SECRET),
            scope=_value(config, name, _SCOPE),
        )
    except ValueError as error:
        raise ConfigError(f"{jaas_key} {error}") from None
    if not path and not (login.client_id and login.client_secret):
        raise ConfigError(
            f"{key} is set without the client id and secret for it: set {scopes.narrow(name, OAUTHBEARER, _CLIENT_ID)} "
            f"and {scopes.narrow(name, OAUTHBEARER, _CLIENT_SECRET)}"
        )
    return login


def _require_check(config: BrokerConfig, name: str, key: str, switch: str) -> None:
    if not _value(config, name, key) and not _value(config, name, switch):
        wanted = scopes.narrow(name, OAUTHBEARER, key)
        raise ConfigError(
            f"{wanted} is missing: listener {name} would accept tokens that are for others; set it, or "
            f"{scopes.narrow(name, OAUTHBEARER, switch)}=true"
        )


def _path(config: BrokerConfig, name: str, key: str, url: str) -> str:
    """Return the path of a file that an address names; empty for an address of HTTP. Raises ``ConfigError``."""
    allows_files = _value(config, name, _FILES)
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"{key} is no address: expected http: or https:") from None
    if parts.username or parts.password:
        raise ConfigError(f"{key} has a user or a password in its address: leave them out")
    if is_http:
        return ""
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{key}={url} is not valid: expected http://, https:// or file:///")
    if not allows_files:
        raise ConfigError(f"{key}={url} names a file: set {_FILES}=true if it may")
    return path


def _value(config: BrokerConfig, name: str, key: str) -> Any:
    return scopes.parse(config, name, OAUTHBEARER, key)


def _key(config: BrokerConfig, name: str, key: str) -> str:
    return scopes.find(config, name, OAUTHBEARER, key)[0]
