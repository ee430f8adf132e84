"""Where clients of a cluster under test connect, and as whom: without TLS and login, or with SASL_SSL and SCRAM."""

from dataclasses import dataclass, field
from typing import Any, Final

_MECHANISM: Final = "SCRAM-SHA-512"
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
VARIABLE: Final = "LOAD_SECURITY"
"""The environment variable in which a client's program finds its settings of security, as properties."""


@dataclass(frozen=True, slots=True)
class Access:
    """Bootstrap servers, and the login of a user of SCRAM; none without ``username``."""

    bootstrap: str
    username: str = ""
    password: str = field(default="", repr=False)
    authority: str = ""
    """The file of the certificate that signed those of the brokers."""

    def of_oncelog(self) -> dict[str, Any]:
        """Return the settings of security of our clients."""
        if not self.username:
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": self.authority,
            "sasl_mechanism": _MECHANISM,
            "sasl_username": self.username,
            "sasl_password": self.password,
        }

    def of_librdkafka(self) -> dict[str, str]:
        """Return those of librdkafka."""
        if not self.username:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanisms": _MECHANISM,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }

    def of_java(self) -> dict[str, str]:
        """Return those of the Java client."""
        if not self.username:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_LOGIN} username="{self.username}" password="{self.password}";',
        }
