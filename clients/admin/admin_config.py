"""The settings of an administrator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.clients.arguments import checked_text
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.durations import checked_milliseconds
from oncelog.clients.security_config import SecurityConfig, require_security

KAFKA_NAMES: Final[Mapping[str, str | None]] = {
    "sasl_username": None,
    "sasl_password": None,
    "sasl_oauthbearer_extensions": None,
    "sasl_oauthbearer_token_provider": None,
    "bootstrap": "bootstrap.servers",
    "connect_timeout_ms": "socket.connection.setup.timeout.ms",
}
"""Kafka's names of the settings that are called otherwise here."""


@checked_fields(KAFKA_NAMES)
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(SecurityConfig):
    """The settings of an administrator. Wrong ones are a ``ValueError`` or ``TypeError`` that names the setting."""

    bootstrap: str
    """Brokers to connect to first: ``host:port,host:port``."""
    client_id: str = "oncelog-admin"
    """The name that brokers log, and meter for quotas."""
    connect_timeout_ms: int = 10_000
    """Maximum time of one attempt to connect to a broker."""
    default_api_timeout_ms: int = 30_000
    """Maximum time of one call, however many requests and retries it consists of. (Kafka's default is 60 s.)"""

    def __post_init__(self) -> None:
        parse_bootstrap(self.bootstrap)
        require_security(self)
        checked_text(self.client_id, "client_id")
        checked_milliseconds(self.connect_timeout_ms, "connect_timeout_ms")
        checked_milliseconds(self.default_api_timeout_ms, "default_api_timeout_ms")
