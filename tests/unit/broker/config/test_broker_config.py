"""Configuration comes from where Kafka's users keep it, and nothing in it is ignored in silence."""

import re
from pathlib import Path

import pytest

import oncelog.broker
from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig, attribute
from oncelog.broker.config.settings import ConfigError, nearest_key
from oncelog.broker.config.sources import load_config, settings_in_environment
from oncelog.broker.config.topic_config import SYNONYMS
from oncelog.broker.handlers import all_handlers
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.properties import parse_properties


def test_defaults_are_all_valid_values_of_their_settings() -> None:
    for key, row in BROKER_SETTINGS.items():
        for default in (row.default, row.embedded):
            if default is not None:
                assert row.parse(row.format(default) or "") == default, key


def test_cleanup_policy_that_is_empty_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"log\.cleanup\.policy= is not valid: expected compact, delete or both"):
        load_config(overrides=["log.cleanup.policy="], environment={})


def test_settings_all_have_a_description() -> None:
    assert [key for key, row in BROKER_SETTINGS.items() if not row.doc.endswith(".")] == []


def test_broker_defaults_are_kafkas() -> None:
    config = load_config(overrides=["zookeeper.connect=localhost:2181"]).config
    assert config.log_segment_bytes == 1_073_741_824
    assert config.message_max_bytes == 1_048_588
    assert config.offsets_topic_replication_factor == 3
    assert config.transaction_state_log_min_isr == 2
    assert config.group_initial_rebalance_delay_ms == 3_000
    assert config.socket_request_max_bytes == 104_857_600
    assert config.transaction_max_timeout_ms == 900_000


def test_embedded_broker_has_single_node_defaults_and_logs_them() -> None:
    loaded = load_config()
    assert loaded.config.offsets_topic_replication_factor == 1
    assert loaded.config.transaction_state_log_replication_factor == 1
    assert loaded.config.transaction_state_log_min_isr == 1
    assert loaded.config.group_initial_rebalance_delay_ms == 0
    assert len(loaded.remarks) == 1
    for key in ("offsets.topic.replication.factor=1", "group.initial.rebalance.delay.ms=0"):
        assert key in loaded.remarks[0]


def test_given_settings_are_never_lowered() -> None:
    config = load_config(
        overrides=["offsets.topic.replication.factor=3", "group.initial.rebalance.delay.ms=3000"]
    ).config
    assert config.offsets_topic_replication_factor == 3
    assert config.group_initial_rebalance_delay_ms == 3_000


def test_later_sources_override_earlier_ones() -> None:
    properties = "num.partitions=1\nlog.segment.bytes=1000\nmessage.max.bytes=1000\nfetch.max.bytes=1024\n"
    environment = {
        "KAFKA_CFG_LOG_SEGMENT_BYTES": "2000",
        "KAFKA_CFG_MESSAGE_MAX_BYTES": "2000",
        "KAFKA_MESSAGE_MAX_BYTES": "3000",
        "KAFKA_FETCH_MAX_BYTES": "3000",
    }
    config = load_config(properties=properties, environment=environment, overrides=["fetch.max.bytes=4000"]).config
    assert config.num_partitions == 1
    assert config.log_segment_bytes == 2000
    assert config.message_max_bytes == 3000
    assert config.fetch_max_bytes == 4000
    assert config.given["fetch.max.bytes"] == "4000"


def test_names_of_environment_variables_are_those_of_kafkas_images() -> None:
    environment = {
        "KAFKA_LOG_DIRS": "a",
        "KAFKA_LISTENER_NAME_MY__LISTENER_X": "b",
        "KAFKA_SOME___KEY": "c",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_OPTS": "",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
        "KAFKA_BOOTSTRAP_SERVERS": "x:1",
        "PATH": "/bin",
    }
    assert settings_in_environment(environment) == {
        "log.dirs": "a",
        "listener.name.my_listener.x": "b",
        "some-key": "c",
    }


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b c  \n", {"a": "b c  "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("# no\n! no\n\na=#yes", {"a": "#yes"}),
        ("a=1,\\\n   2,\\\n   3\nb=x", {"a": "1,2,3", "b": "x"}),
        ("a=c:\\\\x\nb=2", {"a": "c:\\x", "b": "2"}),
        (r"k\=ey=a\tb\u0041", {"k=ey": "a\tbA"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\", {"a": ""}),
    ],
)
def test_properties_format_is_parsed_as_in_kafka(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_unknown_key_is_reported_with_the_nearest_known_one() -> None:
    loaded = load_config(overrides=["log.retention.hour=1", "no.such.thing.at.all=1"])
    assert loaded.warnings == (
        "unknown setting log.retention.hour: did you mean log.retention.hours?",
        "unknown setting no.such.thing.at.all",
    )


@pytest.mark.parametrize("mistyped", ["num.partition", "num.partitionss", "num.prtitions", "num.partitoins"])
def test_nearest_key_differs_by_a_letter_or_two(mistyped: str) -> None:
    assert nearest_key(mistyped, BROKER_SETTINGS) == "num.partitions"
    assert nearest_key(mistyped * 10, BROKER_SETTINGS) is None


def test_former_name_of_a_setting_sets_it_with_a_warning() -> None:
    loaded = load_config(overrides=["oncelog.end.txn.answer.ms=7"])
    assert loaded.config.oncelog_end_txn_response_ms == 7
    assert loaded.warnings == (
        "oncelog.end.txn.answer.ms is called oncelog.end.txn.response.ms: "
        "the former name ends with the next minor release",
    )


def test_present_name_of_a_setting_overrides_the_former() -> None:
    loaded = load_config(overrides=["oncelog.end.txn.answer.ms=7", "oncelog.end.txn.response.ms=8"])
    assert loaded.config.oncelog_end_txn_response_ms == 8


def test_unserved_image_variable_is_reported_with_remedy() -> None:
    loaded = load_config(environment={"KAFKA_CREATE_TOPICS": "orders:3:1", "KAFKA_HEAP_OPTS": "-Xmx1G"})
    assert loaded.warnings == ("KAFKA_CREATE_TOPICS does nothing here: create topics with `oncelog topic create`",)
    (warning,) = load_config(environment={"KAFKA_ADVERTISED_HOST_NAME": "kafka"}).warnings
    assert "KAFKA_ADVERTISED_LISTENERS" in warning
    assert load_config(environment={"KAFKA_CREATE_TOPICS": ""}).warnings == ()


def test_key_without_effect_is_reported_once_with_the_reason() -> None:
    loaded = load_config(
        overrides=["num.io.threads=8", "remote.log.storage.system.enable=true", "process.roles=broker,controller"]
    )
    assert loaded.warnings == ()
    assert [remark for remark in loaded.remarks if "num.io.threads" in remark] == [
        "num.io.threads has no effect: one event loop does this work, without a pool of threads"
    ]
    assert any("remote.log.storage.system.enable has no effect" in remark for remark in loaded.remarks)
    assert any("process.roles has no effect" in remark for remark in loaded.remarks)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["num.partitions=many"], "num.partitions='many' is not valid: expected a whole number, at least 1"),
        (["num.partitions=0"], "num.partitions='0' is not valid: expected a whole number, at least 1"),
        (["log.cleanup.policy=shred"], "log.cleanup.policy='shred' is not valid: expected a list of compact, delete"),
        (["num.partitions"], "'num.partitions' is not a setting: expected key=value"),
        (["authorizer.class.name=kafka.X"], "authorizer.class.name=kafka.X is refused"),
        (["broker.id=1", "node.id=2"], "broker.id=1 and node.id=2 differ"),
        (
            ["group.min.session.timeout.ms=10", "group.max.session.timeout.ms=9"],
            "group.min.session.timeout.ms is larger than group.max.session.timeout.ms",
        ),
    ],
)
def test_configuration_that_is_invalid_raises_config_error(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(overrides=overrides)
    assert str(refusal.value).startswith(message)


def test_second_data_directory_is_refused() -> None:
    """B58: so no log moves from one to another, and no broker offers to move it."""
    with pytest.raises(ConfigError, match=r"log\.dirs=/a,/b is not served yet: expected one directory"):
        load_config(overrides=["log.dirs=/a,/b"])
    assert ApiKey.ALTER_REPLICA_LOG_DIRS not in {handler.api_key for handler in all_handlers(clustered=True)}


def test_node_id_is_another_name_of_broker_id() -> None:
    assert load_config(overrides=["node.id=7"]).config.broker_id == 7


def test_setting_keys_are_attributes_with_dots() -> None:
    config = BrokerConfig()
    assert all(hasattr(config, attribute(key)) for key in BROKER_SETTINGS)


def test_settings_are_used_or_have_a_reason_why_not() -> None:
    """A default of a topic is used through its table; any other is read somewhere as an attribute."""
    sources = (
        "".join(path.read_text() for path in Path(oncelog.broker.__path__[0]).rglob("*.py") if path.name != "config.py")
        + Path(oncelog.broker.config.broker_config.__file__).read_text().partition("given: Mapping")[2]
    )
    defaults = {synonym.key for synonyms in SYNONYMS.values() for synonym in synonyms}
    unread = [
        key
        for key, row in BROKER_SETTINGS.items()
        if not row.unused and key not in defaults and not re.search(rf"\b{attribute(key)}\b", sources)
    ]
    assert unread == []
