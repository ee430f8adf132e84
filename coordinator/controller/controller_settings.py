"""What a controller takes from its broker's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.coordinator.controller.finalized_features import SUPPORTED_FEATURES, TRANSACTION_VERSION
from oncelog.coordinator.controller.topic_plan import TopicDefaults
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What a controller needs to know of its broker's configuration."""

    registration: BrokerRegistration
    listener_name: str
    """The listener over which brokers reach each other."""
    defaults: TopicDefaults
    features: Mapping[str, int] = field(
        default_factory=lambda: {TRANSACTION_VERSION: SUPPORTED_FEATURES[TRANSACTION_VERSION][1]}
    )
    """The levels that a new cluster begins with."""
    balance_seconds: float | None = None
    """How often leadership returns to preferred replicas by itself; None: never."""
    tolerated_imbalance_percentage: int = 10
    """Of the partitions that a broker should lead, how many may be led by others."""
