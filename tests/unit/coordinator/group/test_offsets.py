"""Committed offsets, and those that wait for a marker."""

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.group.offsets import CommittedOffset, OffsetStore
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)


def at(offset: int, leader_epoch: int = -1, topic_id: bytes = ZERO_UUID) -> CommittedOffset:
    return CommittedOffset(offset, leader_epoch, "", 0, None, topic_id)


def position(store: OffsetStore, partition: TopicPartition = P0, group: str = "g") -> int | None:
    stored = store.committed(group).get(partition)
    return None if stored is None else stored.committed.offset


def test_transactional_commit_counts_when_its_marker_comes() -> None:
    store = OffsetStore()
    store.commit("g", P0, at(5), record_offset=0)
    store.commit("g", P0, at(9), record_offset=1, producer_id=7)
    assert position(store) == 5
    assert store.is_unstable("g", P0)
    assert not store.is_unstable("g", P1)
    assert store.end_transaction(7, commit=True) == {"g"}
    assert position(store) == 9
    assert not store.is_unstable("g", P0)


def test_abort_leaves_the_position_of_before_the_transaction() -> None:
    """B72: whoever fetches the group's offset after an abort is at the last position that was committed before."""
    store = OffsetStore()
    store.commit("g", P0, at(5), record_offset=0)
    store.commit("g", P0, at(9), record_offset=1, producer_id=7)
    store.commit("g", P1, at(3), record_offset=2, producer_id=7)
    store.end_transaction(7, commit=False)
    assert (position(store, P0), position(store, P1)) == (5, None)
    assert not store.unstable("g")


def test_later_record_wins_though_its_marker_is_not_needed() -> None:
    store = OffsetStore()
    store.commit("g", P0, at(9), record_offset=1, producer_id=7)
    store.commit("g", P0, at(5), record_offset=2)
    store.end_transaction(7, commit=True)
    assert position(store) == 5


def test_later_of_two_transactions_wins_whichever_ends_first() -> None:
    store = OffsetStore()
    store.commit("g", P0, at(1), record_offset=1, producer_id=7)
    store.commit("g", P0, at(2), record_offset=2, producer_id=8)
    store.end_transaction(8, commit=True)
    assert store.is_unstable("g", P0)
    store.end_transaction(7, commit=True)
    assert position(store) == 2


def test_marker_concerns_only_what_came_before_it_from_its_producer() -> None:
    store = OffsetStore()
    store.commit("g", P0, at(1), record_offset=1, producer_id=7)
    store.end_transaction(8, commit=True)
    assert store.is_unstable("g", P0)
    store.end_transaction(7, commit=True)
    store.commit("g", P0, at(2), record_offset=3, producer_id=7)
    assert position(store) == 1
    assert store.is_unstable("g", P0)
    store.end_transaction(7, commit=False)
    assert position(store) == 1


def test_tombstone_takes_what_waits_with_it() -> None:
    store = OffsetStore()
    store.commit("g", P0, at(5), record_offset=0)
    store.commit("g", P0, at(9), record_offset=1, producer_id=7)
    store.commit("g", P1, at(9), record_offset=2, producer_id=7)
    store.remove("g", P0)
    assert not store.is_unstable("g", P0)
    store.end_transaction(7, commit=True)
    assert (position(store, P0), position(store, P1)) == (None, 9)


def test_offsets_of_deleted_topics_are_found_in_every_group() -> None:
    store = OffsetStore()
    first, second = b"1" * 16, b"2" * 16
    store.commit("g", P0, at(5, topic_id=first), record_offset=0)
    store.commit("g", P1, at(5, topic_id=second), record_offset=1)
    store.commit("h", P0, at(5), record_offset=2, producer_id=7)
    store.commit("h", OTHER, at(5), record_offset=3)
    assert sorted(store.partitions_of_topics({"t": first})) == [("g", P0), ("h", P0)]


# Leader epochs


def epochless(store: OffsetStore, offset: int, current: int = -1) -> int:
    return store.epoch_for_epochless_commit("g", P0, offset, lambda: current)


def test_commit_without_an_epoch_does_not_erase_the_known_one() -> None:
    """B70: at or before the known position the known epoch is right; beyond it the partition's current one is."""
    store = OffsetStore()
    assert epochless(store, 5, current=4) == -1, "nothing is known that could be erased"
    store.commit("g", P0, at(10, leader_epoch=3), record_offset=0)
    assert epochless(store, 10, current=4) == 3
    assert epochless(store, 2, current=4) == 3
    assert epochless(store, 11, current=4) == 4
    assert epochless(store, 11, current=-1) == 3
    assert epochless(store, 11, current=2) == 3


def test_epoch_committed_in_transaction_counts_as_known() -> None:
    """B70: or its commit marker would bring back an epoch that a later commit without one had erased."""
    store = OffsetStore()
    store.commit("g", P0, at(10, leader_epoch=3), record_offset=0)
    store.commit("g", P0, at(20, leader_epoch=6), record_offset=1, producer_id=7)
    assert epochless(store, 20) == 6
    store.commit("g", P0, at(30), record_offset=2)
    assert epochless(store, 40) == -1, "the newest commit said that it does not know"


# Properties

GROUPS = st.sampled_from(["g", "h"])
PARTITIONS = st.sampled_from([P0, P1, OTHER])
PRODUCERS = st.sampled_from([-1, 7, 8])
EVENTS = st.one_of(
    st.tuples(st.just("commit"), GROUPS, PARTITIONS, PRODUCERS),
    st.tuples(st.just("remove"), GROUPS, PARTITIONS),
    st.tuples(st.just("end"), st.sampled_from([7, 8]), st.booleans()),
)


@given(st.lists(EVENTS, max_size=40))
@settings(max_examples=200, deadline=None)
def test_store_agrees_with_a_reading_of_the_whole_log(events: list[tuple[object, ...]]) -> None:
    """The oracle reads the log as a list: what counts is the last record whose producer, if any, has committed it."""
    store = OffsetStore()
    counted: dict[tuple[str, TopicPartition], int] = {}
    waiting: list[tuple[int, str, TopicPartition, int]] = []
    for record_offset, event in enumerate(events):
        match event:
            case ("commit", str(group), TopicPartition() as partition, int(producer)):
                store.commit(group, partition, at(record_offset), record_offset=record_offset, producer_id=producer)
                if producer < 0:
                    counted[group, partition] = record_offset
                else:
                    waiting.append((producer, group, partition, record_offset))
            case ("remove", str(group), TopicPartition() as partition):
                store.remove(group, partition)
                counted.pop((group, partition), None)
                waiting = [each for each in waiting if each[1:3] != (group, partition)]
            case ("end", int(producer), bool(commit)):
                ended = [each for each in waiting if each[0] == producer]
                waiting = [each for each in waiting if each[0] != producer]
                assert store.end_transaction(producer, commit=commit) == {group for _, group, _, _ in ended}
                for _, group, partition, offset in ended if commit else ():
                    counted[group, partition] = max(offset, counted.get((group, partition), -1))
    for group in ("g", "h"):
        for partition in (P0, P1, OTHER):
            assert position(store, partition, group) == counted.get((group, partition))
            unstable = any(each[1:3] == (group, partition) for each in waiting)
            assert store.is_unstable(group, partition) == unstable
            known = (group, partition) in counted or unstable
            assert (partition in store.known_partitions(group)) == known
        assert bool(store.unstable(group)) == any(each[1] == group for each in waiting)
        assert (group in store.group_ids()) == bool(store.known_partitions(group))
