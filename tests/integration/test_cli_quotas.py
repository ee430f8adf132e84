"""``oncelog quota`` against a broker, and what the quotas then do to a client of another make."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.command import Oncelog
from tests.processes import OncelogProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def oncelog(broker: OncelogProcess) -> Oncelog:
    return Oncelog(broker.address)


def test_quotas_are_set_listed_and_removed(oncelog: Oncelog) -> None:
    oncelog("quota set --user alice --producer-byte-rate 1MB --request-percentage 12.5")
    oncelog("quota set --user alice --default-client --consumer-byte-rate 2MiB")
    oncelog("quota set --default-ip --connection-creation-rate 20")
    listed = oncelog.json("quota list --user alice")
    assert [(each["user"], each["client"], each["ip"], each["limit"], each["value"]) for each in listed] == [
        ("alice", None, None, "producer_byte_rate", 1_000_000),
        ("alice", None, None, "request_percentage", 12.5),
        ("alice", "(default)", None, "consumer_byte_rate", 2_097_152),
    ]
    assert oncelog.json("quota describe --user alice --client c") == [
        {"limit": "producer_byte_rate", "value": 1_000_000, "set_for": "user alice"},
        {"limit": "consumer_byte_rate", "value": 2_097_152, "set_for": "user alice, default client-id"},
        {"limit": "request_percentage", "value": 12.5, "set_for": "user alice"},
    ]
    oncelog("quota remove --user alice --limit producer_byte_rate")
    oncelog("quota remove --user alice --default-client")
    oncelog("quota remove --default-ip")
    assert [(each["limit"], each["value"]) for each in oncelog.json("quota list")] == [("request_percentage", 12.5)]
    oncelog("quota remove --user alice")
    assert oncelog.json("quota list") == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("quota set --user alice", "nothing to set"),
        ("quota set --producer-byte-rate 5", "name an entity"),
        ("quota set --user alice --default-user --producer-byte-rate 5", "not both"),
        ("quota set --ip 10.0.0.7 --user alice --connection-creation-rate 5", "quotas of its own"),
        ("quota set --user alice --producer-byte-rate lots", "not a number of bytes"),
    ],
)
def test_quota_set_without_sense_is_refused_with_its_usage(oncelog: Oncelog, arguments: str, text: str) -> None:
    assert text in oncelog.fails(arguments, exit_code=2)


def test_throttled_producer_of_another_make_gets_its_rate(broker: OncelogProcess, oncelog: Oncelog) -> None:
    oncelog("topic create throttled")
    oncelog("quota set --client slow --producer-byte-rate 200kB")
    producer = Producer({"bootstrap.servers": broker.address, "client.id": "slow", "batch.size": 20_000})
    began = time.perf_counter()
    for _ in range(3_000):
        producer.produce("throttled", b"x" * 1_000)
    assert producer.flush(60) == 0
    assert 3_000_000 / (time.perf_counter() - began) < 2 * 200_000, "of which the windows allow ten seconds at once"
    oncelog("quota remove --client slow")
