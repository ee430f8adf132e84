"""The broker's settings that can change while it runs.

Dynamic are the settings that are defaults of topics (``log.retention.ms``, ``message.max.bytes``, …) and the rates of
throttled replication: an override for all brokers replaces what the operator wrote at the start, and one for this
broker replaces both. All other settings are fixed until the next start.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from broker import topic_config
from broker.config import BROKER_SETTINGS, BrokerConfig, attribute
from broker.settings import ConfigError
from coordinator.controller.config_repository import ConfigRepository

_RATES: Final = frozenset({"leader.replication.throttled.rate", "follower.replication.throttled.rate"})
DYNAMIC_KEYS: Final = _RATES | {synonyms[0].key for synonyms in topic_config.SYNONYMS.values()}


def current_config(config: BrokerConfig, configs: ConfigRepository, broker_id: int) -> BrokerConfig:
    """The configuration of a broker that was started with ``config``, as it is now."""
    overrides = {**configs.cluster_overrides(), **configs.broker_overrides(broker_id)}
    return with_overrides(config, overrides) if overrides else config


def with_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> BrokerConfig:
    """The configuration with those overrides that a running broker can take; others may have been left by a tool."""
    usable = {key: value for key, value in overrides.items() if why_not_dynamic(key, value) is None}
    values = {attribute(key): BROKER_SETTINGS[key].parse(value) for key, value in usable.items()}
    return replace(config, given={**config.given, **usable}, **values)


def why_not_dynamic(key: str, value: str) -> str | None:
    """Why a running broker cannot take this setting, or None."""
    if key not in BROKER_SETTINGS:
        return f"Unknown broker config name: {key}"
    if key not in DYNAMIC_KEYS:
        return f"Cannot update these configs dynamically: {key}"
    try:
        BROKER_SETTINGS[key].parse(value)
    except ConfigError as error:
        return str(error)
    return None
