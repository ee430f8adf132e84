"""The image of the cluster, as UpdateMetadata requests build it."""

from oncelog.coordinator.controller.cluster_image import (
    LEADER_DURING_DELETE,
    ClusterImage,
    MetadataCache,
    MetadataChange,
)
from oncelog.coordinator.ports import LeaderAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.update_metadata import (
    FULL,
    INCREMENTAL,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def topic(name: str, topic_id: bytes, **leaders: int) -> UpdateMetadataTopicState:
    """Partitions as ``p0=leader``; their leader epoch is ten times the leader."""
    states = [
        UpdateMetadataPartitionState(
            partition_index=int(index[1:]), leader=leader, leader_epoch=10 * leader, isr=[leader], replicas=[leader, 9]
        )
        for index, leader in leaders.items()
    ]
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)


def update(
    *topics: UpdateMetadataTopicState,
    brokers: tuple[int, ...] = (1, 2),
    epoch: int = 1,
    sequence: int = -1,
    full: bool = False,
) -> UpdateMetadataRequest:
    live = [
        UpdateMetadataBroker(
            id=broker_id,
            rack=f"rack{broker_id}",
            endpoints=[
                UpdateMetadataEndpoint(host=f"in{broker_id}", port=1, listener="INTERNAL"),
                UpdateMetadataEndpoint(host=f"out{broker_id}", port=2, listener="EXTERNAL", security_protocol=1),
            ],
        )
        for broker_id in brokers
    ]
    return UpdateMetadataRequest(
        controller_id=1,
        type=FULL if full else INCREMENTAL,
        controller_epoch=epoch,
        topic_states=list(topics),
        live_brokers=live,
        sequence=sequence,
    )


def cache_of(*requests: UpdateMetadataRequest) -> MetadataCache:
    cache = MetadataCache()
    for request in requests:
        assert cache.apply_update_metadata(request) is ErrorCode.NONE
    return cache


def test_metadata_cache_returns_counts_leaders_and_endpoints() -> None:
    cache = cache_of(update(topic("t", OLD_ID, p0=1, p1=-1)))
    assert cache.topic_exists("t")
    assert not cache.topic_exists("u")
    assert (cache.partition_count("t"), cache.partition_count("u")) == (2, None)
    assert (cache.topic_id("t"), cache.topic_id("u")) == (OLD_ID, ZERO_UUID)
    assert cache.leader(TopicPartition("t", 0)) == LeaderAndEpoch(1, 10)
    assert cache.leader(TopicPartition("t", 1)) is None
    assert cache.leader(TopicPartition("t", 2)) is None
    assert cache.leader(TopicPartition("u", 0)) is None
    image = cache.image
    found = image.topic_by_id(OLD_ID)
    assert found is not None
    assert found.name == "t"
    assert image.topic_by_id(NEW_ID) is None
    external = image.endpoint(2, "EXTERNAL")
    assert external is not None
    assert (external.host, external.port, external.security_protocol) == ("out2", 2, 1)
    assert image.endpoint(2, "NONE") is None
    assert image.endpoint(3, "EXTERNAL") is None


def test_partition_count_of_an_internal_topic_stays_until_it_is_another_topic() -> None:
    name = "__consumer_offsets"
    cache = cache_of(update(topic(name, OLD_ID, p0=1, p1=1), topic("t", NEW_ID, p0=1)))
    cache.apply_update_metadata(update(topic(name, OLD_ID, p2=1), topic("t", NEW_ID, p1=1)))
    assert (cache.partition_count(name), cache.partition_count("t")) == (2, 2)
    assert len(cache.image.topics[name].partitions) == 3
    deleted = {f"p{index}": LEADER_DURING_DELETE for index in range(3)}
    cache.apply_update_metadata(update(topic(name, OLD_ID, **deleted)))
    assert cache.partition_count(name) is None
    cache.apply_update_metadata(update(topic(name, NEW_ID, p0=1, p1=1, p2=1, p3=1)))
    assert cache.partition_count(name) == 4


def test_update_changes_only_the_partitions_that_it_names() -> None:
    cache = cache_of(update(topic("t", OLD_ID, p0=1, p1=1), topic("u", NEW_ID, p0=1)))
    before = cache.image
    cache.apply_update_metadata(update(topic("t", OLD_ID, p1=2)))
    assert cache.leader(TopicPartition("t", 0)) == LeaderAndEpoch(1, 10)
    assert cache.leader(TopicPartition("t", 1)) == LeaderAndEpoch(2, 20)
    assert cache.image.topic("u") is before.topic("u")
    old = before.partition(TopicPartition("t", 1))
    assert old is not None
    assert old.leader == 1


def test_update_names_all_live_brokers() -> None:
    cache = cache_of(update(brokers=(1, 2, 3)), update(brokers=(2,)))
    assert list(cache.image.brokers) == [2]


def test_deleted_partitions_and_topics_are_gone() -> None:
    cache = cache_of(update(topic("t", OLD_ID, p0=1, p1=1)), update(topic("t", OLD_ID, p0=LEADER_DURING_DELETE)))
    assert cache.partition_count("t") == 1
    cache.apply_update_metadata(update(topic("t", OLD_ID, p1=LEADER_DURING_DELETE)))
    assert not cache.topic_exists("t")
    assert cache.image.topic_by_id(OLD_ID) is None


def test_topic_of_another_id_keeps_nothing_of_the_former_one() -> None:
    cache = cache_of(update(topic("t", OLD_ID, p0=1, p1=1, p2=1)), update(topic("t", NEW_ID, p0=2)))
    assert cache.partition_count("t") == 1
    assert cache.image.topic_by_id(OLD_ID) is None
    found = cache.image.topic_by_id(NEW_ID)
    assert found is not None
    assert found.name == "t"


def test_partitions_are_in_order_however_they_come() -> None:
    cache = cache_of(update(topic("t", OLD_ID, p2=1, p0=1)), update(topic("t", OLD_ID, p1=1)))
    found = cache.image.topic("t")
    assert found is not None
    assert list(found.partitions) == [0, 1, 2]


def test_request_of_older_controller_is_refused() -> None:
    """B65"""
    cache = cache_of(update(topic("t", OLD_ID, p0=1), epoch=5))
    image = cache.image
    assert cache.apply_update_metadata(update(topic("t", OLD_ID, p0=2), epoch=4)) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.image is image
    assert cache.apply_update_metadata(update(epoch=5)) is ErrorCode.NONE
    assert cache.controller_epoch == 5


def test_update_overtaken_by_newer_one_is_refused() -> None:
    """B65"""
    cache = cache_of(update(topic("t", OLD_ID, p0=1), sequence=5), update(topic("t", OLD_ID, p0=2), sequence=6))
    image = cache.image
    late = update(topic("t", OLD_ID, p0=1), sequence=5, full=True)
    assert cache.apply_update_metadata(late) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.image is image


def test_full_update_replaces_everything_and_names_deleted_topics() -> None:
    changes: list[MetadataChange] = []
    cache = cache_of(update(topic("t", OLD_ID, p0=1, p1=1), topic("u", NEW_ID, p0=1)))
    cache.add_listener(changes.append)
    cache.apply_update_metadata(
        update(topic("t", OLD_ID, p1=2), topic("x", NEW_ID, p0=LEADER_DURING_DELETE), full=True)
    )
    assert list(cache.image.topics) == ["t"]
    assert cache.image.topic_names == {OLD_ID: "t"}
    assert cache.leader(TopicPartition("t", 0)) is None
    (change,) = changes
    assert (change.topics, change.is_full, change.being_deleted) == ({"t", "u", "x"}, True, {"x"})


def test_partition_is_deleted_only_if_full_update_of_newest_controller_left_it_out() -> None:
    """B15"""
    unknown, known = TopicPartition("u", 0), TopicPartition("t", 0)
    cache = cache_of(update(topic("t", OLD_ID, p0=-1)))
    assert not cache.is_deleted(unknown)
    cache.apply_update_metadata(update(topic("t", OLD_ID, p0=-1), full=True))
    assert cache.is_deleted(unknown)
    assert cache.is_deleted(TopicPartition("t", 1))
    assert not cache.is_deleted(known)  # It has no leader at the moment.
    assert cache.admit(LeaderAndIsrRequest(controller_epoch=2), "LeaderAndIsr")
    assert not cache.is_deleted(unknown)
    cache.apply_update_metadata(update(epoch=2))
    assert not cache.is_deleted(unknown)
    cache.apply_update_metadata(update(topic("t", OLD_ID, p0=1), epoch=2, full=True))
    assert cache.is_deleted(unknown)


def test_listeners_hear_of_every_accepted_update_in_order() -> None:
    cache = MetadataCache()
    heard: list[tuple[str, ClusterImage, frozenset[str]]] = []

    def listener(name: str) -> None:
        def hear(change: MetadataChange) -> None:
            assert change.after is cache.image
            heard.append((name, change.before, change.topics))

        cache.add_listener(hear)

    empty = cache.image
    listener("first")
    listener("second")
    cache.apply_update_metadata(update(topic("t", OLD_ID, p0=1), epoch=2))
    cache.apply_update_metadata(update(epoch=1))
    assert heard == [("first", empty, frozenset({"t"})), ("second", empty, frozenset({"t"}))]
