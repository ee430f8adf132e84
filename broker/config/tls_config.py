"""TLS as the settings have it: the certificates of a listener, and what it requires of clients.

Each setting of ``oncelog.broker.config.tls_settings`` is looked for as ``listener.name.NAME.KEY``, with the listener's
name in lower case, and then as ``KEY``. ``ssl.client.auth`` without a listener's name is for listeners without SASL, as
in Kafka. What cannot work is refused at the start, with the setting to change. No message contains a secret.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.settings import ConfigError, Kind, settings_of
from oncelog.broker.config.tls_settings import TlsSettings
from oncelog.protocol.tls.settings import parse_cipher_suites

_KEYS: Final = tuple(key for key in settings_of(TlsSettings) if key.startswith("ssl."))
_PREFIXED: Final = re.compile(rf"listener\.name\.(?P<listener>[^.]+)\.(?P<key>{'|'.join(map(re.escape, _KEYS))})")
_STORES: Final = frozenset(
    {"ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.location", "ssl.truststore.type"}
)
_SECRET_STORES: Final = frozenset(
    {
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""What Kafka can change in a running broker, too: it encrypts them in the metadata store."""
_CLIENT_AUTH: Final = "ssl.client.auth"
_RULES: Final = "ssl.principal.mapping.rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where the content of a key store or trust store comes from, and what opens it."""

    key: str
    """The setting that says where, for messages."""
    location: str | None
    pem: str | None = field(default=None, repr=False)
    """The content itself, if there is no file."""
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    is_altered: bool = False
    """Whether a client has set the place, by AlterConfigs, and not the file of settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsListener:
    """What one listener does in a handshake."""

    name: str
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    """OpenSSL's names; none: its default."""
    client_auth: str
    """``none``, ``requested`` or ``required``."""
    key_store: StoreConfig
    trust_store: StoreConfig | None
    """None: what the system trusts."""
    mapping_rules: str
    checks_host: bool
    """Whether the certificate of another broker must be for its host name."""
    may_change_name: bool
    may_lose_alternatives: bool


def match_prefixed(key: str) -> re.Match[str] | None:
    """Return the parts ``listener`` and ``key`` of a setting of one listener; None if it is none."""
    return _PREFIXED.fullmatch(key)


def is_secret(key: str) -> bool:
    """Return whether the value of a prefixed key must not be shown."""
    match = _PREFIXED.fullmatch(key)
    return match is not None and BROKER_SETTINGS[match["key"]].kind is Kind.PASSWORD


def is_dynamic(key: str) -> bool:
    """Return whether a prefixed key can change in a running broker: where the stores of a listener are."""
    match = _PREFIXED.fullmatch(key)
    return match is not None and match["key"] in _STORES


def why_store_not_dynamic(key: str) -> str | None:
    """Return why a running broker does not take a setting of a store in the form that it has, if it is one."""
    match = _PREFIXED.fullmatch(key)
    bare = key if match is None else match["key"]
    if match is None and bare in _STORES | _SECRET_STORES:
        return (
            f"These security configs can be dynamically updated only per-listener using the listener prefix: {key}. "
            f"Name the listener: listener.name.NAME.{key}"
        )
    if bare in _SECRET_STORES:
        return (
            f"{key} cannot be altered: those who can read the metadata store could read it. Put the new certificates "
            "in place of the old file, with the same password: the broker reads it again by itself"
        )
    return None


def parse_tls_listener(config: BrokerConfig, name: str, *, has_sasl: bool) -> TlsListener:
    """Read the settings of a listener with TLS. Raises ``ConfigError``."""
    scope = _Scope(config, name)
    client_auth = scope.value(_CLIENT_AUTH, narrow_only=has_sasl)
    trust_store = _trust_store(scope)
    if client_auth != "none" and trust_store is None:
        raise ConfigError(
            f"{scope.key_of(_CLIENT_AUTH)}={client_auth} for listener {name} without certificates of those who are "
            f"trusted to have one: set {scope.key_of('ssl.truststore.location')}"
        )
    suites = scope.value("ssl.cipher.suites")
    try:
        cipher_suites = parse_cipher_suites(suites) if suites else ()
    except ValueError as error:
        raise ConfigError(f"{scope.key_of('ssl.cipher.suites')} {error}") from None
    versions = scope.value("ssl.enabled.protocols")
    if not versions:
        raise ConfigError(f"{scope.key_of('ssl.enabled.protocols')} is empty: expected TLSv1.2, TLSv1.3 or both")
    return TlsListener(
        name=name,
        versions=versions,
        cipher_suites=cipher_suites,
        client_auth=client_auth,
        key_store=_key_store(scope),
        trust_store=trust_store,
        mapping_rules=scope.value(_RULES),
        checks_host=_checks_host(scope),
        may_change_name=scope.value("ssl.allow.dn.changes"),
        may_lose_alternatives=scope.value("ssl.allow.san.changes"),
    )


def _key_store(scope: "_Scope") -> StoreConfig:
    location, key = scope.value("ssl.keystore.location"), scope.value("ssl.keystore.key")
    chain = scope.value("ssl.keystore.certificate.chain")
    location_key = scope.key_of("ssl.keystore.location")
    if location and (key or chain):
        raise ConfigError(f"{location_key} is set, and ssl.keystore.key or its certificates too: leave one out")
    if bool(key) != bool(chain):
        missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
        raise ConfigError(
            f"{scope.key_of(missing)} is missing for listener {scope.name}: key and certificates, or none"
        )
    if not (location or key):
        raise ConfigError(
            f"{location_key} is missing: listener {scope.name} has TLS, and needs a private key with certificates (PEM "
            "or PKCS12)"
        )
    return StoreConfig(
        key=location_key if location else scope.key_of("ssl.keystore.key"),
        location=location,
        pem=None if location else f"{key}\n{chain}",
        password=scope.value("ssl.keystore.password"),
        key_password=scope.value("ssl.key.password"),
    )


def _trust_store(scope: "_Scope") -> StoreConfig | None:
    location, pem = scope.value("ssl.truststore.location"), scope.value("ssl.truststore.certificates")
    location_key = scope.key_of("ssl.truststore.location")
    if location and pem:
        raise ConfigError(f"{location_key} is set, and ssl.truststore.certificates too: leave one out")
    if not (location or pem):
        return None
    return StoreConfig(
        key=location_key if location else scope.key_of("ssl.truststore.certificates"),
        location=location,
        pem=None if location else pem,
        password=scope.value("ssl.truststore.password"),
    )


def _checks_host(scope: "_Scope") -> bool:
    key = "ssl.endpoint.identification.algorithm"
    algorithm = scope.value(key).lower()
    if algorithm not in ("https", ""):
        raise ConfigError(f"{scope.key_of(key)}={algorithm} is not valid: expected https, or nothing")
    return bool(algorithm)


class _Scope:
    """The settings of one listener."""

    def __init__(self, config: BrokerConfig, name: str) -> None:
        self._config = config
        self.name = name

    def value(self, key: str, *, narrow_only: bool = False) -> Any:
        """Return the value for the listener; with ``narrow_only`` the default if only the general key is set."""
        setting = BROKER_SETTINGS[key]
        narrow = self._narrow(key)
        text = self._config.prefixed.get(narrow)
        if text is None:
            text = None if narrow_only else self._config.given.get(key)
        if text is None or (not text.strip() and setting.default is None):
            return setting.default
        try:
            return setting.parse(text)
        except ConfigError:
            shown = "(hidden)" if setting.kind is Kind.PASSWORD else repr(text)
            raise ConfigError(f"{narrow}={shown} is not valid: expected {setting.expected}") from None

    def key_of(self, key: str) -> str:
        """Return the key as it is set, or as it is best set: for the listener."""
        return (
            key if key in self._config.given and self._narrow(key) not in self._config.prefixed else self._narrow(key)
        )

    def _narrow(self, key: str) -> str:
        return f"listener.name.{self.name.lower()}.{key}"
