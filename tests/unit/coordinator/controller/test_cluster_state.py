"""What the controller knows of the cluster: who may lead, and be in sync."""

from collections.abc import Mapping

import pytest

from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker, VersionedState
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, PartitionState
from oncelog.protocol.topic_partition import TopicPartition

WRITTEN = 50


def cluster_of(epochs: Mapping[int, int]) -> ClusterState:
    cluster = ClusterState()
    for broker_id, epoch in epochs.items():
        registration = BrokerRegistration(broker_id=broker_id, endpoints=())
        cluster.brokers[broker_id] = LiveBroker(registration=registration, epoch=epoch)
    return cluster


@pytest.mark.parametrize(
    ("epochs", "usable"),
    [
        ({1: 10, 2: 20, 3: 30}, {1, 2, 3}),
        ({1: 10, 2: 60, 3: 30}, {1, 3}),
        ({2: 60, 3: 30}, {3}),
        ({1: 60, 2: 70}, {1, 2}),  # Nobody is there who has not restarted: any of them may lead.
        ({1: 60, 3: 30}, {3}),
        ({1: 60, 4: 30}, {1, 4}),  # Broker 4 was not in sync, and cannot take anybody's place.
    ],
)
def test_broker_registered_since_state_was_written_is_not_usable(epochs: Mapping[int, int], usable: set[int]) -> None:
    """B57: while another broker is in sync, which did not."""
    state = PartitionState(leader=1, leader_epoch=5, isr=(1, 2, 3), controller_epoch=1)
    versioned = VersionedState(state=state, version=7, mzxid=WRITTEN)
    assert set(cluster_of(epochs).usable_members(TopicPartition("t", 0), versioned)) == usable
