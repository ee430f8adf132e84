"""The broker's settings that can change while it runs.

Dynamic are the settings that are defaults of topics (``log.retention.ms``, ``message.max.bytes``, …), the rates of
throttled replication, those of the cleaner, the limits of connections, the expiry of producer ids, the verification of
transactions, and the counts of threads, which are kept for tools and do nothing: an override for all brokers replaces
what the operator wrote at the start, and one for this broker replaces both. All other settings are fixed until the next
start.

So are the places of a listener's key store and trust store, for one broker, and the limits of a listener's connections,
for one broker or for all, as in Kafka.

``DynamicSettings`` keeps them in a running broker, and passes the values in force to the parts of the broker.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from oncelog.broker.config import tls_config, topic_config
from oncelog.broker.config.broker_config import (
    BROKER_SETTINGS,
    NO_CLEANUP_POLICY,
    BrokerConfig,
    attribute,
)
from oncelog.broker.config.listener_limits import listener_of_limit, why_invalid_limit
from oncelog.broker.config.listeners import parse_listeners, parse_per_ip_limits
from oncelog.broker.config.prefixed_settings import is_prefixed, why_no_listener
from oncelog.broker.config.settings import ConfigError, did_you_mean, nearest_key
from oncelog.broker.config.sources import variable_of_key
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, Overrides

logger = logging.getLogger(__name__)

_RATES: Final = frozenset({"leader.replication.throttled.rate", "follower.replication.throttled.rate"})
_CLEANER: Final = frozenset({"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.size"})
_CLEANUP_POLICY: Final = "log.cleanup.policy"
_PER_IP_LIMITS: Final = "max.connections.per.ip.overrides"
_CONNECTION_LIMITS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "max.connections.per.ip", _PER_IP_LIMITS}
)
_PRODUCERS: Final = frozenset({"producer.id.expiration.ms", "transaction.partition.verification.enable"})
_THREADS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
_TOPIC_DEFAULTS: Final = frozenset(synonyms[0].key for synonyms in topic_config.SYNONYMS.values())
DYNAMIC_KEYS: Final = _RATES | _CLEANER | _CONNECTION_LIMITS | _PRODUCERS | _THREADS | _TOPIC_DEFAULTS

_CHANGED: Final = "%s is %s from now on, was %s (dynamic configuration)"

ApplySettings: TypeAlias = Callable[[BrokerConfig], None]
"""Makes a part of the broker go by this configuration from now on."""
CheckSettings: TypeAlias = Callable[[BrokerConfig], str | None]
"""Returns why a part of the broker cannot go by the stores of this configuration, or None."""


class DynamicSettings:
    """The configuration of one broker as it is now. Listens to the dynamic configuration, from before it is loaded."""

    def __init__(self, config: BrokerConfig, broker_id: int, configs: ConfigRepository) -> None:
        self._config = config
        self._broker_id = broker_id
        self._configs = configs
        self._parts: list[ApplySettings] = []
        self._checks: list[CheckSettings] = []
        self._logged = config
        """The configuration of which everything is in the log."""
        configs.add_listener(self._on_overrides)

    @property
    def current(self) -> BrokerConfig:
        return current_config(self._config, self._configs, self._broker_id)

    def follow(self, apply: ApplySettings, why_not: CheckSettings | None = None) -> None:
        """Call ``apply`` with the present configuration, now and whenever it changes; ``why_not`` before it does."""
        self._parts.append(apply)
        if why_not is not None:
            self._checks.append(why_not)
        apply(self.current)

    def _on_overrides(self, resource: ConfigResource, overrides: Overrides) -> None:
        if resource.type is ResourceType.BROKER and resource.name in ("", str(self._broker_id)):
            current = self.current
            self._log_changes(current)
            for apply in self._parts:
                apply(current)

    def _log_changes(self, current: BrokerConfig) -> None:
        before, self._logged = self._logged, current
        for key in sorted(DYNAMIC_KEYS):
            old, new = getattr(before, attribute(key)), getattr(current, attribute(key))
            if old != new:
                shown = BROKER_SETTINGS[key].format
                before_text = "not set" if old is None else shown(old)
                logger.info(_CHANGED, key, shown(new), before_text)
        limits = _limits(before.prefixed) | _limits(current.prefixed)
        for key in sorted(limits):
            old, new = before.prefixed.get(key, "not set"), current.prefixed.get(key, "not set")
            if old != new:
                logger.info(_CHANGED, key, new, old)

    def present_overrides(self, resource: ConfigResource) -> Overrides:
        """Return what a resource has now, by the dynamic configuration."""
        if resource.type is ResourceType.TOPIC:
            return self._configs.topic_overrides(resource.name)
        if not resource.name:
            return self._configs.cluster_overrides()
        return self._configs.broker_overrides(int(resource.name)) if resource.name.isdecimal() else {}

    def why_not_alterable(self, resource: ConfigResource, overrides: Mapping[str, str]) -> str | None:
        """Return why a resource must not have exactly these overrides while this broker runs, or None."""
        reason = next(filter(None, (why_not_dynamic(key, value) for key, value in overrides.items())), None)
        if reason is not None:
            return reason
        if not overrides.get(_CLEANUP_POLICY, "delete").strip(" ,"):
            return NO_CLEANUP_POLICY  # One that is there from an older release goes on: it keeps records for ever.
        common, own = self._configs.cluster_overrides(), self._configs.broker_overrides(self._broker_id)
        if not resource.name and _stores(overrides):
            keys = ", ".join(_stores(overrides))
            return f"Cannot update these configs at default cluster level, broker id must be specified: {keys}"
        after = with_overrides(self._config, {**common, **overrides} if resource.name else {**overrides, **own})
        reason = why_too_many_threads(self.current, after) or self._why_no_listener(resource, overrides)
        if reason is None and _stores(overrides) != _stores(self.present_overrides(resource)):
            reason = next(filter(None, (check(after) for check in self._checks)), None)
        return reason

    def _why_no_listener(self, resource: ConfigResource, overrides: Mapping[str, str]) -> str | None:
        """Return which limit is for a listener that this broker has not, or None. What there is already may stay."""
        new = _limits(overrides).items() - self.present_overrides(resource).items()
        names = {listener.name.lower() for listener in parse_listeners(self._config).bound} if new else set()
        reasons = (why_no_listener(key, listener_of_limit(key) or "", names) for key, _ in sorted(new))
        return next(filter(None, reasons), None)


def _limits(overrides: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in overrides.items() if listener_of_limit(key) is not None}


def _stores(overrides: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in overrides.items() if tls_config.is_dynamic(key)}


def current_config(config: BrokerConfig, configs: ConfigRepository, broker_id: int) -> BrokerConfig:
    """Return the present configuration of a broker that was started with ``config``."""
    overrides = {**configs.cluster_overrides(), **configs.broker_overrides(broker_id)}
    return with_overrides(config, overrides) if overrides else config


def with_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration with those overrides that a running broker can take; others may be left by a tool."""
    usable = {
        key: value for key, value in overrides.items() if key in DYNAMIC_KEYS and why_not_dynamic(key, value) is None
    }
    values = {attribute(key): BROKER_SETTINGS[key].parse(value) for key, value in usable.items()}
    limits = {key: value for key, value in _limits(overrides).items() if why_invalid_limit(key, value) is None}
    prefixed = {**config.prefixed, **_stores(overrides), **limits}
    return replace(config, given={**config.given, **usable}, prefixed=prefixed, **values)


def why_not_dynamic(key: str, value: str) -> str | None:
    """Return why a running broker cannot take this setting, or None."""
    if key not in BROKER_SETTINGS and not is_prefixed(key):
        synonyms = topic_config.SYNONYMS.get(key)
        nearest = synonyms[0].key if synonyms else nearest_key(key, BROKER_SETTINGS)
        return f"Unknown broker config name: {key}{did_you_mean(nearest)}"
    if tls_config.is_dynamic(key):
        return None
    if listener_of_limit(key) is not None:
        return why_invalid_limit(key, value)
    if key not in DYNAMIC_KEYS:
        return tls_config.why_store_not_dynamic(key) or (
            f"Cannot update these configs dynamically: {key}. It is read when a broker starts: give it as "
            f"`oncelog serve --set {key}=VALUE`, as the environment variable {variable_of_key(key)}, or as a line "
            f"{key}=VALUE of the --config file, and restart that broker"
        )
    try:
        parsed = BROKER_SETTINGS[key].parse(value)
        if key == _PER_IP_LIMITS:
            parse_per_ip_limits(parsed)
    except ConfigError as error:
        return str(error)
    return None


def why_too_many_threads(before: BrokerConfig, after: BrokerConfig) -> str | None:
    """Return why Kafka would not go from one count of threads to the other in one step, or None."""
    for key in sorted(_THREADS):
        old, new = getattr(before, attribute(key)), getattr(after, attribute(key))
        failed = f"Dynamic thread count update validation failed for {key}={new}, value should"
        if new == old:
            continue
        if new <= 0:
            return f"{failed} be at least 1"
        if new < old // 2:
            return f"{failed} be at least half the current value {old}"
        if new > old * 2:
            return f"{failed} not be greater than double the current value {old}"
    return None
