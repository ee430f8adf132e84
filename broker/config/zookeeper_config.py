"""The settings of the connection to ZooKeeper as a whole: what cannot work, and what would protect nothing, is refused.

An operator who names a trust store or a login expects that no other program reads what the broker says to ZooKeeper.
So a setting that would have no effect is refused at the start, with the setting that is missing. ``=false`` of a switch
says that it may be so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.zookeeper_settings import NETTY
from oncelog.clients.tls import TlsSettings
from oncelog.protocol.sasl.digest_login import DIGEST_MODULE, DigestLogin, parse_digest_login
from oncelog.protocol.sasl.jaas import JaasError
from oncelog.protocol.tls.settings import VERSIONS, parse_cipher_suites

_SET_ACL: Final = "zookeeper.set.acl"
_JAAS: Final = "oncelog.zookeeper.sasl.jaas.config"
_TLS: Final = "zookeeper.ssl.client.enable"
_SSL: Final = "zookeeper.ssl."
_KEY_STORE: Final = "zookeeper.ssl.keystore"
_TRUST_STORE: Final = "zookeeper.ssl.truststore"
_SOCKET: Final = "zookeeper.clientCnxnSocket"
_SUITES: Final = "zookeeper.ssl.cipher.suites"
_HOST_CHECK: Final = "zookeeper.ssl.endpoint.identification.algorithm"
_REVOCATION: Final = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
_LOGIN: Final = f'{DIGEST_MODULE} required username="NAME" password="PASSWORD";'
_KEYS: Final = (_SET_ACL, _JAAS, *(key for key in BROKER_SETTINGS if key.startswith(_SSL)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """How a broker knows ZooKeeper, and what it is to ZooKeeper. Its text contains no password."""

    tls: TlsSettings | None
    login: DigestLogin | None
    protects_znodes: bool

    @property
    def has_user(self) -> bool:
        """Whether the broker is a user of ZooKeeper, to which znodes can belong."""
        return self.login is not None or (self.tls is not None and self.tls.own_file is not None)


def zookeeper_access(config: BrokerConfig) -> ZooKeeperAccess:
    """Return what the settings say. Raises ``ConfigError`` for what cannot work or would protect nothing."""
    _refuse_useless(config)
    tls = _tls(config) if config.zookeeper_ssl_client_enable else None
    access = ZooKeeperAccess(tls=tls, login=_login(config), protects_znodes=config.zookeeper_set_acl)
    if access.protects_znodes and not access.has_user:
        raise ConfigError(
            f"{_SET_ACL}=true needs a user of ZooKeeper to which the znodes belong: set {_JAAS}={_LOGIN} or, with "
            f"{_TLS}=true, {_KEY_STORE}.location"
        )
    return access


def remarks(config: BrokerConfig) -> Iterator[str]:
    """Yield which settings have no effect because TLS was switched off by name."""
    if _is_switched_off(config):
        for key in config.given:
            if key.startswith(_SSL) and key != _TLS:
                yield f"{key} has no effect: {_TLS}=false"


def _refuse_useless(config: BrokerConfig) -> None:
    promising = [key for key in _KEYS if _promises(config.given.get(key, ""))]
    if _is_switched_off(config):
        promising = [key for key in promising if not key.startswith(_SSL)]
    if promising and config.is_embedded:
        raise ConfigError(
            f"{promising[0]} has no effect without zookeeper.connect: a standalone broker has its metadata in its own "
            "data directory; leave it out, or set zookeeper.connect (--zookeeper)"
        )
    for key in promising:
        if key.startswith(_SSL) and not config.zookeeper_ssl_client_enable:
            raise ConfigError(
                f"{key} has no effect without {_TLS}=true, and the broker would connect to ZooKeeper in plain text: "
                f"set that, or {_TLS}=false if it may"
            )


def _is_switched_off(config: BrokerConfig) -> bool:
    """Return whether TLS is off, and the operator says so."""
    return _TLS in config.given and not config.zookeeper_ssl_client_enable


def _promises(text: str) -> bool:
    """Return whether a value requests something: it is neither empty nor false."""
    return text.strip().lower() not in ("", "false")


def _login(config: BrokerConfig) -> DigestLogin | None:
    text = config.oncelog_zookeeper_sasl_jaas_config
    if text is None:
        return None
    try:
        return parse_digest_login(text)
    except JaasError as error:
        raise ConfigError(f"{_JAAS} {error}; expected {_LOGIN}") from None


def _tls(config: BrokerConfig) -> TlsSettings:
    for key in _REVOCATION:
        if _promises(config.given.get(key, "")):
            raise ConfigError(
                f"{key}=true is refused: revoked certificates of ZooKeeper are not looked for; leave it out, and take "
                "a revoked authority or certificate out of the trust store"
            )
    socket = config.zookeeper_clientCnxnSocket
    if socket not in (None, NETTY):
        raise ConfigError(
            f"{_SOCKET}={socket} is refused: {_TLS}=true, for which Kafka needs {NETTY}; set that, or leave it out"
        )
    for store in (_KEY_STORE, _TRUST_STORE):
        for key in (f"{store}.password", f"{store}.type"):
            if _promises(config.given.get(key, "")) and not config.given.get(f"{store}.location"):
                raise ConfigError(f"{key} has no effect without {store}.location: set that, or leave it out")
    try:
        suites = parse_cipher_suites(config.zookeeper_ssl_cipher_suites) if config.zookeeper_ssl_cipher_suites else ()
    except ValueError as error:
        raise ConfigError(f"{_SUITES} {error}") from None
    return TlsSettings(
        trusted_file=config.zookeeper_ssl_truststore_location,
        trusted_password=config.zookeeper_ssl_truststore_password,
        trusted_type=config.zookeeper_ssl_truststore_type,
        own_file=config.zookeeper_ssl_keystore_location,
        own_password=config.zookeeper_ssl_keystore_password,
        own_type=config.zookeeper_ssl_keystore_type,
        checks_host=_checks_host(config),
        versions=_versions(config),
        cipher_suites=suites,
    )


def _versions(config: BrokerConfig) -> tuple[str, ...]:
    if config.zookeeper_ssl_enabled_protocols:
        return config.zookeeper_ssl_enabled_protocols
    one = config.zookeeper_ssl_protocol
    return (one,) if one in VERSIONS else VERSIONS


def _checks_host(config: BrokerConfig) -> bool:
    algorithm = config.zookeeper_ssl_endpoint_identification_algorithm
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(f"{_HOST_CHECK}={algorithm} is not valid: expected https, or nothing")
    return bool(algorithm)
