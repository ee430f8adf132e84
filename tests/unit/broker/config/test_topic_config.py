"""A topic's settings: overrides first, then the broker's synonym in its unit, then Kafka's default."""

import pytest

from oncelog.broker.config.rules import ConfigRules
from oncelog.broker.config.sources import load_config
from oncelog.broker.config.topic_config import (
    SYNONYMS,
    TOPIC_SETTINGS,
    default_origin,
    group_metadata_topic_configs,
    log_config,
    transaction_state_topic_configs,
    validate,
)
from oncelog.broker.storage.log_config import LogConfig
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.errors import ErrorCode


def test_topic_config_without_broker_settings_is_kafkas_default() -> None:
    assert log_config(load_config().config, {}) == LogConfig()


@pytest.mark.parametrize(
    ("settings", "attribute", "value"),
    [
        ([], "retention_ms", 604_800_000),
        (["log.retention.hours=1"], "retention_ms", 3_600_000),
        (["log.retention.hours=-1"], "retention_ms", -1),
        (["log.retention.hours=1", "log.retention.minutes=2"], "retention_ms", 120_000),
        (["log.retention.minutes=2", "log.retention.ms=3"], "retention_ms", 3),
        (["log.roll.hours=2"], "segment_ms", 7_200_000),
        (["log.roll.ms=5"], "segment_ms", 5),
        (["log.flush.interval.messages=1"], "flush_interval_messages", 1),
        (["log.flush.interval.ms=7"], "flush_interval_ms", 7),
        (["message.max.bytes=9"], "max_message_bytes", 9),
        (["log.message.timestamp.type=LogAppendTime"], "timestamp_type", "LogAppendTime"),
        (["log.cleanup.policy=compact,delete"], "cleanup_policy", frozenset({"compact", "delete"})),
        (["unclean.leader.election.enable=true"], "unclean_leader_election", True),
        (["log.cleaner.min.cleanable.ratio=0.1"], "min_cleanable_ratio", 0.1),
        (["log.segment.delete.delay.ms=1"], "file_delete_delay_ms", 1),
    ],
)
def test_topic_config_defaults_are_the_brokers_settings(settings: list[str], attribute: str, value: object) -> None:
    assert getattr(log_config(load_config(overrides=settings).config, {}), attribute) == value


def test_topic_override_wins_over_the_broker() -> None:
    config = load_config(overrides=["log.retention.ms=1", "min.insync.replicas=1"]).config
    made = log_config(config, {"retention.ms": "2", "min.insync.replicas": "2", "cleanup.policy": "compact"})
    assert (made.retention_ms, made.min_insync_replicas, made.compacts, made.deletes) == (2, 2, True, False)


def test_topic_override_that_is_invalid_here_does_not_prevent_opening() -> None:
    assert log_config(load_config().config, {"retention.ms": "soon", "no.such": "1"}) == LogConfig()


def test_default_origin_is_the_key_that_was_set() -> None:
    config = load_config(overrides=["log.retention.hours=1"]).config
    assert default_origin(config, "retention.ms") == "log.retention.hours"
    assert default_origin(config, "segment.ms") is None


def test_defaults_are_all_valid_values_of_their_settings() -> None:
    for key, row in TOPIC_SETTINGS.items():
        assert row.parse(row.format(row.default) or "") == row.default, key


def test_synonyms_belong_to_known_topic_settings() -> None:
    assert SYNONYMS.keys() <= TOPIC_SETTINGS.keys()


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "1", None),
        ("retention.ms", None, None),
        ("cleanup.policy", "compact,delete", None),
        ("cleanup.policy", "", "cleanup.policy= is not valid: expected compact, delete or both"),
        ("retention.ms", "-2", "retention.ms='-2' is not valid: expected a whole number, at least -1"),
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("retention.mss", "1", "Unknown topic config name: retention.mss: did you mean retention.ms?"),
        ("log.retention.hours", "1", "Unknown topic config name: log.retention.hours: did you mean retention.ms?"),
        ("compression.gzip.level", "9", None),
        ("compression.gzip.level", "-1", None),
        (
            "compression.gzip.level",
            "0",
            "compression.gzip.level=0 is not valid: expected a whole number from 1 to 9, or -1",
        ),
        ("remote.storage.enable", "false", None),
    ],
)
def test_validate_topic_setting_returns_reason_or_none(key: str, text: str | None, reason: str | None) -> None:
    assert validate(key, text) == reason


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("compression.gzip.level", "99"), ("compression.gzip.level", "-2"), ("compression.gzip.level", "0"),
        ("compression.lz4.level", "0"), ("compression.lz4.level", "18"),
        ("compression.zstd.level", "-131073"), ("compression.zstd.level", "23"),
        ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "-1"), ("flush.messages", "0"), ("flush.ms", "-1"),
        ("index.interval.bytes", "-1"), ("local.retention.bytes", "-3"), ("local.retention.ms", "-3"),
        ("max.compaction.lag.ms", "0"), ("max.message.bytes", "-1"), ("message.timestamp.after.max.ms", "-1"),
        ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.type", "X"), ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "-0.1"), ("min.compaction.lag.ms", "-1"), ("min.insync.replicas", "0"),
        ("preallocate", "x"), ("remote.storage.enable", "true"), ("retention.ms", "-2"), ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "-1"), ("segment.ms", "0"), ("unclean.leader.election.enable", "1"),
        ("unclean.recovery.strategy", "manual"),
    ],
)  # fmt: skip
def test_validate_topic_setting_that_kafka_4_3_refuses_is_refused(key: str, text: str) -> None:
    assert validate(key, text) is not None


def test_min_compaction_lag_above_max_is_refused_also_against_the_brokers_default() -> None:
    rules = ConfigRules(load_config(overrides=["log.cleaner.max.compaction.lag.ms=5"]).config)
    topic = ConfigResource(ResourceType.TOPIC, "t")
    for overrides in ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, {"min.compaction.lag.ms": "6"}):
        error = rules.why_invalid(topic, overrides)
        assert error is not None
        assert (error.code, "conflict topic config" in (error.message or "")) == (ErrorCode.INVALID_CONFIG, True)
    assert rules.why_invalid(topic, {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}) is None


def test_internal_topics_are_created_with_valid_settings_of_kafkas() -> None:
    config = load_config().config
    groups, transactions = group_metadata_topic_configs(config), transaction_state_topic_configs(config)
    assert groups["segment.bytes"] == transactions["segment.bytes"] == "104857600"
    assert groups["cleanup.policy"] == transactions["cleanup.policy"] == "compact"
    assert transactions["min.insync.replicas"] == "1"
    for key, value in (*groups.items(), *transactions.items()):
        assert validate(key, value) is None


def test_overrides_of_topics_and_brokers_are_validated_by_the_tables() -> None:
    rules = ConfigRules(load_config().config)
    topic, broker = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "1")
    assert rules.why_invalid(topic, {"retention.ms": "1"}) is None
    error = rules.why_invalid(topic, {"retention.ms": "x"})
    assert error is not None
    assert error.code is ErrorCode.INVALID_CONFIG
    assert rules.why_invalid(broker, {"log.retention.ms": "1"}) is None
    refused = rules.why_invalid(broker, {"broker.id": "2"})
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert rules.is_list(topic, "cleanup.policy")
    assert not rules.is_list(topic, "retention.ms")
    assert rules.default_text(topic, "cleanup.policy") == "delete"
