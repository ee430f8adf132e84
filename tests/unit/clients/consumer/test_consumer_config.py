"""Settings that cannot be are refused with their name."""

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
        ({"default_api_timeout_ms": float("nan")}, "default_api_timeout_ms"),
        ({"request_timeout_ms": float("inf")}, "request_timeout_ms"),
        ({"connect_timeout_ms": -1}, "connect_timeout_ms"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms"),
        ({"session_timeout_ms": 2**31}, "session_timeout_ms"),
    ],
)
def test_wrong_setting_raises_an_error_that_names_it(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ConsumerConfig(**{"bootstrap": "localhost:9092", **settings})  # type: ignore[arg-type]


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
