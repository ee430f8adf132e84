"""Why a running broker does not take a setting, and what to do instead."""

import pytest

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.dynamic_config import DYNAMIC_KEYS, why_not_dynamic
from oncelog.broker.config.sources import settings_in_environment, variable_of_key


def test_static_setting_is_refused_with_each_way_to_set_it_and_the_restart() -> None:
    reason = why_not_dynamic("oncelog.transaction.version", "1")
    assert reason is not None
    assert reason.startswith("Cannot update these configs dynamically: oncelog.transaction.version. ")
    assert "`oncelog serve --set oncelog.transaction.version=VALUE`" in reason
    assert "KAFKA_ONCELOG_TRANSACTION_VERSION" in reason
    assert "oncelog.transaction.version=VALUE of the --config file" in reason
    assert reason.endswith("restart that broker")


@pytest.mark.parametrize("key", sorted(BROKER_SETTINGS))
def test_variable_of_every_key_sets_that_key(key: str) -> None:
    assert settings_in_environment({variable_of_key(key): "1"}) == {key: "1"}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("log.retention.mss", "log.retention.ms"),
        ("retention.ms", "log.retention.ms"),  # A topic's.
        ("max.message.bytes", "message.max.bytes"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest(key: str, meant: str) -> None:
    assert why_not_dynamic(key, "1") == f"Unknown broker config name: {key}: did you mean {meant}?"


def test_setting_that_resembles_none_is_refused_without_a_guess() -> None:
    assert why_not_dynamic("nope.nope", "1") == "Unknown broker config name: nope.nope"


def test_dynamic_settings_are_all_in_the_table() -> None:
    assert BROKER_SETTINGS.keys() >= DYNAMIC_KEYS
