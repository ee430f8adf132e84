"""``oncelog cluster --secure``: certificates, passwords and settings of a cluster that lets no stranger in.

Brokers, clients and ZooKeeper know each other by TLS and logins, and the znodes belong to the brokers.

They are made once, in ``secured`` below the cluster's directory, and used by every later start there. The brokers' file
and that of the administrator can be read by their owner only; no password is an argument of a process.
"""

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from oncelog.broker.local_cluster.zookeeper_server import ServerSecurity
from oncelog.clients.trial_certificates import make_authority, sign_broker
from oncelog.protocol.sasl.digest_login import DIGEST_MODULE

_DIRECTORY: Final = "secured"
_AUTHORITY: Final = "ca.pem"
_BROKER: Final = "broker.pem"
_SETTINGS: Final = "server.properties"
_ADMIN: Final = "admin.properties"
_JAAS: Final = "zookeeper.jaas"
_PASSWORD_BITS: Final = 160
_DAYS: Final = 365
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Secured(NamedTuple):
    """Files that brokers and the administrator are started with."""

    settings: Path
    admin: Path
    zookeeper: ServerSecurity | None
    """None if they were made by a release that did not secure ZooKeeper."""


def is_secured(directory: Path) -> bool:
    """Return whether a cluster's directory has them."""
    return (directory / _DIRECTORY / _SETTINGS).exists()


def prepare_secured(directory: Path, rng: Random, now: datetime.datetime) -> Secured:
    """Make what is not there. Raises ``OSError``."""
    place = directory / _DIRECTORY
    if not is_secured(directory):
        _make(place, rng, now)
    zookeeper = ServerSecurity(key_store=place / _BROKER, trust_store=place / _AUTHORITY, jaas=place / _JAAS)
    return Secured(place / _SETTINGS, place / _ADMIN, zookeeper if zookeeper.jaas.exists() else None)


def _make(place: Path, rng: Random, now: datetime.datetime) -> None:
    place.mkdir(mode=0o700, exist_ok=True)
    authority = make_authority(now, _DAYS)
    broker = sign_broker(authority, ["localhost"], now, _DAYS)
    between, admin, at_zookeeper = (f"{rng.getrandbits(_PASSWORD_BITS):040x}" for _ in range(3))
    _write(place / _AUTHORITY, authority.certificate)
    _write(place / _BROKER, broker.key + broker.certificate)
    _write(place / _JAAS, f'Server {{ {DIGEST_MODULE} required user_broker="{at_zookeeper}"; }};\n'.encode())
    _write(place / _ADMIN, _properties(_admin_settings(place, admin)))
    settings = _broker_settings(place, between, admin) | _zookeeper_settings(place, at_zookeeper)
    _write(place / _SETTINGS, _properties(settings))  # The last: then all are there.


def _zookeeper_settings(place: Path, password: str) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(place / _AUTHORITY),
        "oncelog.zookeeper.sasl.jaas.config": f'{DIGEST_MODULE} required username="broker" password="{password}";',
        "zookeeper.set.acl": "true",
    }


def _broker_settings(place: Path, between: str, admin: str) -> dict[str, str]:
    return {
        "inter.broker.listener.name": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(place / _BROKER),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place / _AUTHORITY),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} username="broker" password="{between}" user_broker="{between}" '
        f'user_admin="{admin}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin",
    }


def _admin_settings(place: Path, password: str) -> Mapping[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place / _AUTHORITY),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} username="admin" password="{password}";',
    }


def _properties(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
