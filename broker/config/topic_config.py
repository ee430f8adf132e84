"""The settings of a topic: Kafka's keys, each with the broker's setting that is its default.

``log_config`` turns the overrides of one topic into what its logs are run by. Keys of Kafka that do nothing here are in
the table too, so that a client that sets them is not refused.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oncelog.broker.config.broker_config import (
    AS_PRODUCED,
    BROKER_SETTINGS,
    GZIP_LEVEL,
    MIN_ISR,
    BrokerConfig,
    attribute,
)
from oncelog.broker.config.settings import (
    INT64_MAX,
    ConfigError,
    Setting,
    boolean,
    did_you_mean,
    double,
    integer,
    long,
    named,
    nearest_key,
    string,
    strings,
)  # fmt: skip
from oncelog.broker.config.unclean_recovery import STRATEGIES, STRATEGY
from oncelog.broker.storage.log_config import LogConfig
from oncelog.protocol.internal.topics import INTERNAL_TOPICS

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_ONE_FORMAT: Final = "messages are stored in format version 2 only"
_NO_TIERS: Final = "tiered storage is not supported"
_NO_TIERED_STORAGE: Final = "Tiered Storage functionality is disabled in the broker."
LEADER_THROTTLE: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLE: Final = "follower.replication.throttled.replicas"
_CLEANUP_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_THROTTLED_REPLICA: Final = re.compile("[0-9]+:[0-9]+")


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    named(
        {
            _CLEANUP_POLICY: strings(
                ("delete",), "Retention policy of segments: delete, compact or both.", choices=("compact", "delete")
            ),
            "compression.type": string(
                "producer",
                "Compression of the log; producer: the codec of the producer.",
                choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            ),
            "compression.gzip.level": integer(-1, GZIP_LEVEL, low=-1, high=9, unused=AS_PRODUCED),
            "compression.lz4.level": integer(9, "Level of lz4.", low=1, high=17, unused=AS_PRODUCED),
            "compression.zstd.level": integer(3, "Level of zstd.", low=-131_072, high=22, unused=AS_PRODUCED),
            "delete.retention.ms": long(
                86_400_000, "Milliseconds to retain tombstones and markers after their first cleaning.", low=0
            ),
            "file.delete.delay.ms": long(
                60_000, "Milliseconds between the deletion of a segment and the removal of its files.", low=0
            ),
            "flush.messages": long(
                INT64_MAX, "Number of records after which a log is flushed (fsync); 1: before every response.", low=1
            ),
            "flush.ms": long(INT64_MAX, "Milliseconds after which the log is flushed (fsync).", low=0),
            FOLLOWER_THROTTLE: strings(
                (), "Replicas that fetch at follower.replication.throttled.rate: partition:broker,…, or * for all."
            ),
            "index.interval.bytes": integer(4096, "Bytes of the log between two entries of its offset index.", low=0),
            LEADER_THROTTLE: strings(
                (),
                "Replicas that leaders serve at leader.replication.throttled.rate: partition:broker,…, or * for all.",
            ),
            "local.retention.bytes": long(
                -2, "Maximum bytes of a partition on local storage.", low=-2, unused=_NO_TIERS
            ),
            "local.retention.ms": long(
                -2, "Maximum milliseconds to retain segments on local storage.", low=-2, unused=_NO_TIERS
            ),
            "max.compaction.lag.ms": long(
                INT64_MAX,
                "Maximum milliseconds that a record remains ineligible for compaction, whatever the dirty ratio.",
                low=1,
            ),
            "max.message.bytes": integer(1_048_588, "Maximum size of a record batch, in bytes.", low=0),
            "message.downconversion.enable": boolean(
                True, "Whether consumers older than Kafka 0.11 are served; if not, they get UNSUPPORTED_VERSION."
            ),
            "message.format.version": string("3.0-IV1", "Message format version.", unused=_ONE_FORMAT),
            "message.timestamp.after.max.ms": long(
                3_600_000, "Maximum milliseconds by which a record's timestamp may be after the broker's time.", low=0
            ),
            "message.timestamp.before.max.ms": long(
                INT64_MAX, "Maximum milliseconds by which a record's timestamp may be before the broker's time.", low=0
            ),
            "message.timestamp.difference.max.ms": long(
                INT64_MAX,
                "Maximum difference between a record's timestamp and the broker's time, in older configurations.",
                low=0,
                unused="replaced by the keys that end in timestamp.before.max.ms and timestamp.after.max.ms",
            ),
            "message.timestamp.type": string(
                "CreateTime",
                "Timestamp of records: CreateTime, set by the producer, or LogAppendTime, set by the broker.",
                choices=("CreateTime", "LogAppendTime"),
            ),
            "min.cleanable.dirty.ratio": double(
                0.5, "Minimum ratio of dirty bytes to all bytes of the log for it to be cleaned.", low=0, high=1
            ),
            "min.compaction.lag.ms": long(0, "Minimum milliseconds that a record remains uncompacted.", low=0),
            "min.insync.replicas": integer(1, MIN_ISR, low=1),
            "preallocate": boolean(
                False, "Whether to preallocate segment files.", unused="segment files are not preallocated"
            ),
            "remote.storage.enable": boolean(False, "Whether tiered storage is enabled.", unused=_NO_TIERS),
            "retention.bytes": long(
                -1, "Size of a partition above which its oldest segments are deleted, in bytes; -1: no limit."
            ),
            "retention.ms": long(604_800_000, "Milliseconds to retain records; -1: no limit.", low=-1),
            "segment.bytes": integer(
                1 << 30,
                "Maximum size of a log segment, in bytes. New values are at least 1048576.",
                low=14,
            ),
            "segment.index.bytes": integer(10 << 20, "Maximum size of an index file, in bytes.", low=4),
            "segment.jitter.ms": long(0, "Maximum random jitter subtracted from segment.ms, in milliseconds.", low=0),
            "segment.ms": long(604_800_000, "Maximum age of a log segment, in milliseconds.", low=1),
            "unclean.leader.election.enable": boolean(
                False, "Whether a replica outside the ISR can be elected leader; this loses records."
            ),
            "unclean.recovery.strategy": string("balanced", STRATEGY, choices=STRATEGIES),
        }
    )
)
"""Every row of the table, by key. Defaults are Kafka's; a broker's own come from the synonyms below."""


class Synonym(NamedTuple):
    """A broker's setting that is a topic setting's default, in units of ``factor``."""

    key: str
    factor: int = 1


def _synonyms() -> dict[str, tuple[Synonym, ...]]:
    """Return the synonyms by topic key; the first that is set wins and the last always is."""
    with_log_prefix = (
        "segment.bytes", "retention.bytes", "index.interval.bytes", "cleanup.policy", "preallocate",
        "message.format.version", "message.timestamp.type", "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.downconversion.enable",
    )  # fmt: skip
    with_cleaner_prefix = ("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
    same = (
        "unclean.leader.election.enable", "min.insync.replicas", "compression.type", "compression.gzip.level",
        "compression.lz4.level", "compression.zstd.level", "unclean.recovery.strategy",
    )  # fmt: skip
    return {
        **{key: (Synonym(f"log.{key}"),) for key in with_log_prefix},
        **{key: (Synonym(f"log.cleaner.{key}"),) for key in with_cleaner_prefix},
        **{key: (Synonym(key),) for key in same},
        "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
        "flush.messages": (Synonym("log.flush.interval.messages"),),
        "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        "retention.ms": (
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
        "max.message.bytes": (Synonym("message.max.bytes"),),
        "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
        "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    }


SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = MappingProxyType(_synonyms())

_OF_BROKER: Final[Mapping[str, str]] = MappingProxyType(
    {synonym.key: key for key, synonyms in SYNONYMS.items() for synonym in synonyms}
)
"""The topic setting whose default a broker's setting is, by the latter's key."""

_LOG_CONFIG_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "flush.messages": "flush_interval_messages",
        "flush.ms": "flush_interval_ms",
        "message.timestamp.type": "timestamp_type",
        "message.timestamp.before.max.ms": "timestamp_before_max_ms",
        "message.timestamp.after.max.ms": "timestamp_after_max_ms",
        "unclean.leader.election.enable": "unclean_leader_election",
        "min.cleanable.dirty.ratio": "min_cleanable_ratio",
    }
)
"""Where ``LogConfig`` calls a setting otherwise than its key."""


def why_not_internal(topic: str, overrides: Mapping[str, str]) -> str | None:
    """Return why an internal topic must not have these valid overrides, or None. Other topics may have any."""
    policy = overrides.get(_CLEANUP_POLICY, _COMPACT)
    if topic not in INTERNAL_TOPICS or TOPIC_SETTINGS[_CLEANUP_POLICY].parse(policy) == (_COMPACT,):
        return None
    return (
        f"{_CLEANUP_POLICY}={policy} is not valid for the internal topic {topic}: it must be {_COMPACT}, because "
        "deleting its records by age or size loses committed offsets or the fencing of producers"
    )


def validate(key: str, text: str | None) -> str | None:
    """Return why a topic must not get this setting, or None. A value of None resets it to the default."""
    setting = TOPIC_SETTINGS.get(key)
    if setting is None:
        nearest = _OF_BROKER.get(key) or nearest_key(key, TOPIC_SETTINGS)
        return f"Unknown topic config name: {key}{did_you_mean(nearest)}"
    if text is None:
        return None
    try:
        value = setting.parse(text)
    except ConfigError as error:
        return str(error)
    if key == _CLEANUP_POLICY and not value:
        return "cleanup.policy= is not valid: expected compact, delete or both"
    if key == "compression.gzip.level" and value == 0:
        return f"{key}={text} is not valid: expected a whole number from 1 to 9, or -1"
    if key == "remote.storage.enable" and value:
        return f"{_NO_TIERED_STORAGE} Topic cannot be configured with remote log storage."
    if key in (LEADER_THROTTLE, FOLLOWER_THROTTLE) and value != ("*",):
        if not all(_THROTTLED_REPLICA.fullmatch(replica) for replica in value):
            return f"{key}={text} is not valid: expected * or partition:broker,partition:broker,…"
    return None


def validate_together(config: BrokerConfig, overrides: Mapping[str, str]) -> str | None:
    """Return why a topic must not have these settings at once, or None. Each of them is valid by itself."""
    shortest, longest = (
        _in_force(config, overrides, key) for key in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        return f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
    return None


def _in_force(config: BrokerConfig, overrides: Mapping[str, str], key: str) -> Any:
    text = overrides.get(key)
    return default_value(config, key) if text is None else TOPIC_SETTINGS[key].parse(text)


def default_value(config: BrokerConfig, key: str) -> Any:
    """Return what a topic without an override gets on this broker."""
    for synonym in SYNONYMS.get(key, ()):
        value = getattr(config, attribute(synonym.key))
        if value is not None:
            return _scaled(value, synonym.factor)
    return TOPIC_SETTINGS[key].default


def default_origin(config: BrokerConfig, key: str) -> str | None:
    """Return the broker key, set by the operator, that a topic's default comes from; None if none was set."""
    for synonym in SYNONYMS.get(key, ()):
        if synonym.key in config.given:
            return synonym.key
    return None


def _scaled(value: Any, factor: int) -> Any:
    return -1 if factor != 1 and value < 0 else value * factor if factor != 1 else value


def effective_overrides(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Return a topic's overrides as they take effect: an internal topic is compacted, whatever was set.

    To remove its records by age or size would lose committed offsets, or fencing.
    """
    return {**overrides, _CLEANUP_POLICY: _COMPACT} if topic in INTERNAL_TOPICS else overrides


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return what the logs of a topic with these overrides are run by. Overrides not valid here are left out."""
    values: dict[str, Any] = {}
    for key in TOPIC_SETTINGS:
        name = _LOG_CONFIG_NAMES.get(key, attribute(key))
        if name in _LOG_CONFIG_FIELDS:
            text = overrides.get(key)
            usable = text is not None and validate(key, text) is None
            value = TOPIC_SETTINGS[key].parse(text or "") if usable else default_value(config, key)
            values[name] = frozenset(value) if key == _CLEANUP_POLICY else value
    return LogConfig(**values)


_LOG_CONFIG_FIELDS: Final = frozenset(field.name for field in fields(LogConfig))


def group_metadata_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """Return what ``__consumer_offsets`` is created with."""
    return {
        _CLEANUP_POLICY: _COMPACT,
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }


def transaction_state_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """Return what ``__transaction_state`` is created with."""
    return {
        _CLEANUP_POLICY: _COMPACT,
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


assert all(synonym.key in BROKER_SETTINGS for synonyms in SYNONYMS.values() for synonym in synonyms)
