"""Where clients of a cluster under test connect, and as whom: without TLS and login, or with SASL_SSL."""

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from oncelog.clients.connection import Connection, connect
from oncelog.clients.sasl import SaslClient
from oncelog.clients.security_config import SecurityConfig

_SCRAM: Final = "SCRAM-SHA-512"
_MODULES: Final = {_SCRAM: "scram.ScramLoginModule", "PLAIN": "plain.PlainLoginModule"}
VARIABLE: Final = "LOAD_SECURITY"
"""The environment variable in which a client's program finds its settings of security, as properties."""


@dataclass(frozen=True, slots=True)
class Access:
    """Bootstrap servers, and the login of a user; none without ``username``."""

    bootstrap: str
    username: str = ""
    password: str = field(default="", repr=False)
    authority: str = ""
    """The file of the certificate that signed those of the brokers."""
    mechanism: str = _SCRAM

    @classmethod
    def of_administrator(cls, bootstrap: str, cluster_directory: Path) -> "Access":
        """Return that of the super user of ``oncelog cluster --secure``."""
        text = (cluster_directory / "secured" / "admin.properties").read_text()
        found = {key: _value(text, key) for key in ("ssl.truststore.location", "sasl.mechanism", "sasl.jaas.config")}
        username, password = re.findall(r'="([^"]*)"', found["sasl.jaas.config"])
        return cls(bootstrap, username, password, found["ssl.truststore.location"], found["sasl.mechanism"])

    def of_oncelog(self) -> dict[str, Any]:
        """Return the settings of security of our clients."""
        if not self.username:
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": self.authority,
            "sasl_mechanism": self.mechanism,
            "sasl_username": self.username,
            "sasl_password": self.password,
        }

    def connector(self) -> Callable[..., Coroutine[Any, Any, Connection]]:
        """Return what opens a single connection to an address: ``oncelog.clients.connection.connect``."""
        security = SecurityConfig(**self.of_oncelog())
        login = security.login
        return partial(connect, tls=security.make_tls_context(), sasl=None if login is None else SaslClient(login))

    def of_librdkafka(self) -> dict[str, str]:
        """Return those of librdkafka."""
        if not self.username:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanisms": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }

    def of_java(self) -> dict[str, str]:
        """Return those of the Java client."""
        if not self.username:
            return {}
        module = f"org.apache.kafka.common.security.{_MODULES[self.mechanism]} required"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f'{module} username="{self.username}" password="{self.password}";',
        }


def _value(properties: str, key: str) -> str:
    (value,) = re.findall(rf"^{re.escape(key)}=(.*)$", properties, re.MULTILINE)
    return str(value)
