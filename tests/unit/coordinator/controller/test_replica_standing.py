"""Which members of a partition may lack acknowledged records, by what their brokers registered."""

from dataclasses import replace

import pytest

from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker, TopicState, VersionedState
from oncelog.coordinator.controller.replica_standing import (
    broken_members,
    completed,
    described_eligible,
    first_state,
    leader_restarted,
    standing_of,
)
from oncelog.coordinator.metadata_store.znodes import (
    BrokerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 0)
STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=1, epochs={1: 20, 2: 20})
WRITTEN = 50


def broker(
    epoch: int, since: int | None = None, until: int | None = None, *, before: tuple[tuple[int, int], ...] = ()
) -> LiveBroker:
    registration = BrokerRegistration(
        broker_id=0, endpoints=(), intact_since=since, intact_until=until, intact_before=before
    )
    return LiveBroker(registration=registration, epoch=epoch)


def cluster_of(state: PartitionState = STATE, **brokers: LiveBroker) -> ClusterState:
    cluster = ClusterState(keeps_eligible=lambda: True, min_isr=lambda topic: 2)
    cluster.brokers = {int(name[1:]): each for name, each in brokers.items()}
    assignment = TopicAssignment(topic_id=bytes(16), partitions={0: ReplicaAssignment(replicas=(1, 2, 3))})
    cluster.put_topic("t", TopicState(assignment=assignment, version=0))
    cluster.put_state(PARTITION, VersionedState(state=state, version=7, mzxid=WRITTEN))
    return cluster


def broken(cluster: ClusterState) -> set[int]:
    versioned = cluster.state(PARTITION)
    assert versioned is not None
    return set(broken_members(cluster, versioned))


@pytest.mark.parametrize(
    ("registered", "is_broken"),
    [
        (broker(20), False),
        (broker(60, since=20, until=20), False),
        (broker(60, since=10, until=40), False),
        (broker(60), True),
        (broker(60, since=30, until=40), True),
        (broker(60, since=10, until=19), True),
        (broker(60, before=((10, 12), (18, 20))), False),
        (broker(60, since=30, until=30, before=((18, 20),)), False),
        (broker(60, since=30, until=30, before=((10, 19), (21, 25))), True),
    ],
    ids=[
        "same incarnation",
        "killed",
        "often restarted",
        "power lost",
        "power lost before",
        "older copy",
        "another directory since",
        "another directory before",
        "another directory then",
    ],
)
def test_member_is_broken_unless_its_logs_are_intact_since_its_recorded_epoch(
    registered: LiveBroker, is_broken: bool
) -> None:
    """B57: also if the state was written after the broker registered anew (mzxid 50), which the old rule compared."""
    state = replace(STATE, elr=(3,), isr=(1,), epochs={1: 20, 3: 20})
    assert broken(cluster_of(B1=registered, B2=broker(60))) == ({1, 2} if is_broken else {2})
    assert broken(cluster_of(state, B3=registered)) == ({3} if is_broken else set())


def test_absent_member_is_not_broken() -> None:
    assert broken(cluster_of(B3=broker(60))) == set()


def test_member_of_a_state_without_epochs_is_judged_by_when_it_was_written() -> None:
    legacy = replace(STATE, epochs={})
    seen = cluster_of(legacy, B1=broker(40), B2=broker(60))
    assert broken(seen) == {2}
    assert broken(cluster_of(legacy, B2=broker(60, since=40, until=40))) == set()
    half_known = replace(STATE, epochs={1: 20})
    assert broken(cluster_of(half_known, B1=broker(20), B2=broker(40))) == {2}


def test_member_without_epoch_is_judged_by_the_last_state_in_which_none_had_one() -> None:
    """B57: another state has been written meanwhile, for which its broker was away."""
    for state in (replace(STATE, epochs={1: 20}, judged_at=45), replace(STATE, epochs={}, judged_at=45)):
        assert broken(cluster_of(state, B2=broker(60, since=40, until=40))) == set()
        assert broken(cluster_of(state, B2=broker(60, since=48, until=48))) == {2}


def test_unreachable_whole_member_counts_as_usable_beside_reachable_broken_one() -> None:
    cluster = cluster_of(B1=broker(60), B2=broker(20), B3=broker(20))
    cluster.unreachable.add(2)
    standing = standing_of(cluster, PARTITION, 9)
    assert (set(standing.broken), set(standing.usable)) == ({1}, {1, 2, 3})


def test_leader_that_registered_before_the_state_was_written_has_restarted() -> None:
    """B57: the epoch says so, when the version of the state does not."""
    versioned = VersionedState(state=STATE, version=7, mzxid=WRITTEN)
    assert leader_restarted(cluster_of(B1=broker(40, since=20, until=20)), versioned)
    assert not leader_restarted(cluster_of(B1=broker(20)), versioned)
    legacy = versioned._replace(state=replace(STATE, epochs={}))
    assert not leader_restarted(cluster_of(B1=broker(40)), legacy)
    assert leader_restarted(cluster_of(B1=broker(60)), legacy)


def described(state: PartitionState, **brokers: LiveBroker) -> tuple[list[int], list[int]]:
    cluster = cluster_of(state, **brokers)
    versioned = cluster.state(PARTITION)
    assert versioned is not None
    return described_eligible(cluster, versioned)


def test_partition_without_leader_is_described_with_its_isr_as_eligible_unless_broken() -> None:
    waiting = replace(STATE, leader=-1, isr=(1, 2), elr=(3,), epochs={1: 20, 2: 20, 3: 20}, last_known_elr=(4,))
    assert described(waiting) == ([1, 2, 3], [4])
    assert described(waiting, b1=broker(60), b3=broker(60, since=20, until=20)) == ([2, 3], [1, 4])


def test_broken_member_of_the_elr_is_described_as_known_last_while_another_leads() -> None:
    led = replace(STATE, isr=(1,), elr=(2, 3), epochs={1: 20, 2: 20, 3: 20})
    assert described(led, b1=broker(20), b2=broker(60)) == ([3], [2])


def test_eligible_replicas_are_described_as_stored_where_the_cluster_keeps_none() -> None:
    cluster = cluster_of(replace(STATE, leader=-1), b1=broker(60))
    cluster.keeps_eligible = lambda: False
    versioned = cluster.state(PARTITION)
    assert versioned is not None
    assert described_eligible(cluster, versioned) == ([], [])


def test_states_carry_eligible_replicas_only_while_the_feature_is_finalised() -> None:
    cluster = cluster_of(B1=broker(20), B2=broker(20))
    decided = replace(STATE, isr=(1,))
    assert completed(cluster, PARTITION, decided, 9).elr == (2,)
    assert completed(cluster, PARTITION, decided, 9, replicas=(1, 3)).elr == ()
    assert first_state(cluster, replace(STATE, epochs={})).epochs == {1: 20, 2: 20}
    cluster.keeps_eligible = lambda: False
    assert completed(cluster, PARTITION, decided, 9) == replace(decided, epochs={})
    assert first_state(cluster, replace(STATE, epochs={})).epochs == {}
