"""``oncelog cluster --secure``: certificates, passwords and settings of a cluster that lets no stranger in.

They are made once, in ``secured`` below the cluster's directory, and used by every later start there. The brokers' file
and that of the administrator can be read by their owner only; no password is an argument of a process.
"""

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from oncelog.clients.trial_certificates import make_authority, sign_broker

_DIRECTORY: Final = "secured"
_AUTHORITY: Final = "ca.pem"
_BROKER: Final = "broker.pem"
_SETTINGS: Final = "server.properties"
_ADMIN: Final = "admin.properties"
_PASSWORD_BITS: Final = 160
_DAYS: Final = 365
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Secured(NamedTuple):
    """Files that brokers and the administrator are started with."""

    settings: Path
    admin: Path


def is_secured(directory: Path) -> bool:
    """Return whether a cluster's directory has them."""
    return (directory / _DIRECTORY / _SETTINGS).exists()


def prepare_secured(directory: Path, rng: Random, now: datetime.datetime) -> Secured:
    """Make what is not there. Raises ``OSError``."""
    place = directory / _DIRECTORY
    secured = Secured(place / _SETTINGS, place / _ADMIN)
    if is_secured(directory):
        return secured
    place.mkdir(mode=0o700, exist_ok=True)
    authority = make_authority(now, _DAYS)
    broker = sign_broker(authority, ["localhost"], now, _DAYS)
    between, admin = (f"{rng.getrandbits(_PASSWORD_BITS):040x}" for _ in range(2))
    _write(place / _AUTHORITY, authority.certificate)
    _write(place / _BROKER, broker.key + broker.certificate)
    _write(secured.admin, _properties(_admin_settings(place, admin)))
    _write(secured.settings, _properties(_broker_settings(place, between, admin)))  # The last: then all are there.
    return secured


def _broker_settings(place: Path, between: str, admin: str) -> Mapping[str, str]:
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
