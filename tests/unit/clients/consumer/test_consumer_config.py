"""Settings that cannot be are refused with their name."""

import re
from typing import Any

import pytest

from oncelog.clients.consumer import ConsumerConfig
from oncelog.clients.consumer.assigned_partitions import NO_RESET, RESET_TO_EARLIEST, RESET_TO_LATEST, ResetPolicy
from oncelog.clients.consumer.consumer_config import parse_reset_policy


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"bootstrap": "localhost:x"}, "localhost:x"),
        ({"assignors": ("range", "rnage")}, "assignors: rnage"),
        ({"assignors": ()}, "assignors"),
        ({"auto_offset_reset": "smallest"}, "auto_offset_reset: smallest"),
        ({"isolation_level": "serializable"}, "isolation_level: serializable"),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms"),
        ({"group_instance_id": "a"}, "group_id"),
        ({"enable_auto_commit": True}, "group_id"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"default_api_timeout_ms": 0}, "default_api_timeout_ms"),
        ({"request_timeout_ms": -1}, "request_timeout_ms"),
        ({"group_id": ""}, "group_id"),
        ({"client_id": "x" * 40_000}, "client_id"),
        ({"fetch_min_bytes": -1}, "fetch_min_bytes"),
        ({"fetch_max_bytes": 2**31}, "fetch_max_bytes"),
        ({"max_batch_bytes": 0}, "max_batch_bytes"),
        ({"connect_timeout_ms": -1}, "connect_timeout_ms"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms"),
        ({"session_timeout_ms": 2**31}, "session_timeout_ms"),
    ],
)
def test_wrong_setting_raises_an_error_that_names_it(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ConsumerConfig(**{"bootstrap": "localhost:9092", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"bootstrap": ["a:1"]}, "bootstrap must be str, not list"),
        ({"bootstrap": None}, "bootstrap must be str, not NoneType"),
        ({"group_id": 7}, "group_id must be str or None, not int"),
        ({"client_id": 7}, "client_id must be str, not int"),
        ({"max_poll_records": "5"}, "max_poll_records must be int, not str"),
        ({"max_poll_records": True}, "max_poll_records must be int, not bool"),
        ({"request_timeout_ms": float("nan")}, "request_timeout_ms must be int, not float"),
        ({"assignors": "range"}, "assignors must be a collection of str, not str: put it into a list"),
        ({"assignors": [range]}, "assignors[0] must be str, not type"),
        ({"auto_offset_reset": 3}, "auto_offset_reset must be str, not int"),
        ({"check_crcs": "no"}, "check_crcs must be bool, not str"),
        ({"isolation_level": 0}, "isolation_level must be str, not int"),
        ({"client_rack": 7}, "client_rack must be str or None, not int"),
    ],
)
def test_setting_of_another_type_raises_type_error_that_names_it(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape('ConsumerConfig: ' + text)}$"):
        ConsumerConfig(**{"bootstrap": "localhost:9092", **settings})


def test_list_of_assignors_becomes_a_tuple() -> None:
    config = ConsumerConfig(bootstrap="localhost", assignors=["range"])  # type: ignore[arg-type]
    assert config == ConsumerConfig(bootstrap="localhost", assignors=("range",))


def test_cooperation_needs_every_assignor_to_know_how() -> None:
    assert ConsumerConfig(bootstrap="localhost").is_cooperative
    assert not ConsumerConfig(bootstrap="localhost", assignors=("cooperative-sticky", "range")).is_cooperative


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("earliest", RESET_TO_EARLIEST),
        ("latest", RESET_TO_LATEST),
        ("none", NO_RESET),
        ("by_duration:P7D", ResetPolicy(7 * 86_400_000, is_age=True)),
        ("by_duration:P1DT2H3M4S", ResetPolicy(86_400_000 + 2 * 3_600_000 + 3 * 60_000 + 4_000, is_age=True)),
        ("by_duration:PT30M", ResetPolicy(1_800_000, is_age=True)),
    ],
)
def test_reset_policy_text_is_parsed(text: str, policy: ResetPolicy) -> None:
    assert parse_reset_policy(text) == policy


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:7D", "P7D", ""])
def test_text_that_is_no_reset_policy_raises(text: str) -> None:
    with pytest.raises(ValueError, match="auto_offset_reset"):
        parse_reset_policy(text)
