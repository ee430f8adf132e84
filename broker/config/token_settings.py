"""The settings of delegation tokens (KIP-48), a part of the broker's table (``BrokerConfig``), under Kafka's names."""

from dataclasses import dataclass

from oncelog.broker.config.quota_settings import QuotaSettings
from oncelog.broker.config.settings import integer, long, password


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TokenSettings(QuotaSettings):
    """Whether clients can have delegation tokens, and how long these are valid."""

    delegation_token_secret_key: str | None = password(
        "Key from which the secrets of delegation tokens follow, the same on all brokers. None: there are no tokens."
    )
    delegation_token_max_lifetime_ms: int = long(
        604_800_000, "Milliseconds after its creation beyond which a delegation token cannot be renewed.", low=1
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000, "Milliseconds after its creation or its renewal when a delegation token expires.", low=1
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000, "Milliseconds between two looks of the controller for expired delegation tokens to remove.", low=1
    )
    oncelog_delegation_tokens_max_count: int = integer(
        10_000, "Maximum number of delegation tokens; further ones are refused with POLICY_VIOLATION.", low=1
    )
