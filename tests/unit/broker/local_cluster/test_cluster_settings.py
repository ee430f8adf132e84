"""The settings of the brokers of a cluster on one machine."""

import pytest

from oncelog.broker.local_cluster.cluster_settings import (
    addressee,
    brokers_with_listeners,
    default_settings,
    settings_of,
)


def test_default_settings_of_three_brokers_replicate_three_times() -> None:
    assert default_settings(3) == {"default.replication.factor": "3", "min.insync.replicas": "2"}
    assert default_settings(5) == default_settings(3)


@pytest.mark.parametrize("brokers", [1, 2])
def test_default_settings_of_fewer_brokers_lower_replication_factors(brokers: int) -> None:
    assert default_settings(brokers) == {
        "default.replication.factor": str(brokers),
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.min.isr": "1",
    }


def test_user_settings_override_defaults_and_per_broker_ones_override_all() -> None:
    given = ["2:num.partitions=7", "num.partitions=5", "min.insync.replicas=1", "2:broker.rack=a=b"]
    assert settings_of(1, 3, given) == [
        "zookeeper.session.timeout.ms=10000",
        "default.replication.factor=3",
        "min.insync.replicas=1",
        "num.partitions=5",
    ]
    assert settings_of(2, 3, given) == [
        "zookeeper.session.timeout.ms=10000",
        "default.replication.factor=3",
        "min.insync.replicas=1",
        "num.partitions=7",
        "broker.rack=a=b",
    ]


def test_addressee_is_the_broker_id_prefix_or_none() -> None:
    assert addressee("12:broker.rack=a") == 12
    assert addressee("listeners=PLAINTEXT://localhost:1") is None


def test_brokers_with_listeners_of_their_own_are_those_of_the_setting() -> None:
    assert brokers_with_listeners(["2:listeners=PLAINTEXT://:1", "broker.rack=a"], (1, 2)) == {2}
    assert brokers_with_listeners(["listeners=PLAINTEXT://:1"], (1, 2)) == {1, 2}
    assert brokers_with_listeners([], (1, 2)) == set()
