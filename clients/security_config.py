"""The settings of authentication, which all clients have: Kafka's, and librdkafka's names for a user and a password."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from oncelog.protocol.sasl.jaas import JaasError
from oncelog.protocol.sasl.login import SaslLogin, parse_login
from oncelog.protocol.sasl.mechanisms import SERVED

_SASL: Final = "SASL_PLAINTEXT"
_SASL_SETTINGS: Final = ("sasl_mechanism", "sasl_jaas_config", "sasl_username", "sasl_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """How a client authenticates to brokers. Neither its text nor its errors contain a password."""

    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT"] = "PLAINTEXT"
    """Protocol of the brokers' listener; ``SASL_PLAINTEXT`` authenticates, and encrypts nothing."""
    sasl_mechanism: str | None = None
    """``SCRAM-SHA-512``, ``SCRAM-SHA-256`` or ``PLAIN``, which sends the password itself."""
    sasl_jaas_config: str | None = field(default=None, repr=False)
    """User and password in Java's form: the mechanism's login module with the options username and password."""
    sasl_username: str | None = None
    """The user, in place of ``sasl_jaas_config``."""
    sasl_password: str | None = field(default=None, repr=False)
    """The user's password, in place of ``sasl_jaas_config``."""

    @property
    def login(self) -> SaslLogin | None:
        """With what to authenticate; None if the client does not. Raises ``ValueError`` that names the setting."""
        given = [name for name in _SASL_SETTINGS if getattr(self, name) is not None]
        if self.security_protocol != _SASL:
            if given:
                raise ValueError(f"{given[0]} has no effect without security_protocol={_SASL!r}")
            return None
        if self.sasl_mechanism not in SERVED:
            raise ValueError(f"sasl_mechanism must be one of {', '.join(SERVED)}, not {self.sasl_mechanism}")
        if self.sasl_jaas_config is not None:
            if self.sasl_username is not None or self.sasl_password is not None:
                raise ValueError("sasl_jaas_config is given, and sasl_username or sasl_password too: leave one out")
            try:
                return parse_login(self.sasl_mechanism, self.sasl_jaas_config)
            except JaasError as error:
                raise ValueError(f"sasl_jaas_config {error}") from None
        for name in ("sasl_username", "sasl_password"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing for security_protocol={_SASL!r}: it, or sasl_jaas_config")
        assert self.sasl_username is not None
        assert self.sasl_password is not None
        return SaslLogin(mechanism=self.sasl_mechanism, username=self.sasl_username, password=self.sasl_password)


SECURITY_PROPERTIES: Final[Mapping[str, str]] = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.jaas.config": "sasl_jaas_config",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
}
"""Names of the settings in a file of properties: Kafka's, and librdkafka's."""
