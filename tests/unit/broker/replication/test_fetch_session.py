"""The state machine of KIP-227, without a broker: requests in, contexts and errors out."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchKind,
    FetchSessionCache,
    next_epoch,
)
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from oncelog.protocol.topic_partition import TopicPartition

WITH_NAMES = 12
WITH_IDS = 13
TOPIC_ID = bytes(range(16))


def nameless(topic_id: bytes) -> str | None:
    return None


def fetch(
    *partitions: int,
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    offset: int = 0,
    forgotten: tuple[int, ...] = (),
    topic_id: bytes = bytes(16),
    replica_id: int = -1,
) -> FetchRequest:
    requested = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000) for index in partitions]
    return FetchRequest(
        replica_id=replica_id,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=requested)] if requested else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=topic_id, partitions=list(forgotten))]
        if forgotten
        else [],
    )


def opened(
    cache: FetchSessionCache, request: FetchRequest, *, version: int = WITH_NAMES, now_ms: int = 0
) -> FetchContext:
    context = cache.open(request, version, nameless, now_ms)
    assert isinstance(context, FetchContext)
    return context


def kept_session(cache: FetchSessionCache, *partitions: int, now_ms: int = 0, replica_id: int = -1) -> int:
    session = opened(cache, fetch(*partitions, replica_id=replica_id), now_ms=now_ms).session
    assert cache.keep(session, now_ms)
    return session.id


def indexes(context: FetchContext) -> list[int]:
    return [position.partition_index for position in context.session.positions.values()]


def dirty(context: FetchContext) -> list[int]:
    return [position.partition_index for position in context.session.dirty]


@pytest.fixture
def cache() -> FetchSessionCache:
    return FetchSessionCache(slots=2, rng=Random(7))


@pytest.mark.parametrize(("epoch", "expected"), [(-1, -1), (0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1)])
def test_epochs_follow_each_other_and_skip_zero(epoch: int, expected: int) -> None:
    assert next_epoch(epoch) == expected


def test_fetch_without_session_keeps_none(cache: FetchSessionCache) -> None:
    context = opened(cache, fetch(0, 1, epoch=FINAL_EPOCH))
    assert context.kind is FetchKind.SESSIONLESS
    assert indexes(context) == [0, 1]
    assert len(cache) == 0


def test_full_fetch_becomes_a_session_when_its_response_is_sent(cache: FetchSessionCache) -> None:
    context = opened(cache, fetch(0, 1))
    assert context.kind is FetchKind.FULL
    assert len(cache) == 0
    assert cache.keep(context.session, 0)
    assert context.session.id > 0
    assert context.session.epoch == 1
    assert cache.partition_count == 2


def test_incremental_requests_carry_changes_only(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0, 1, 2)
    context = opened(cache, fetch(1, 3, session_id=session_id, epoch=1, offset=17, forgotten=(0,)))
    assert context.kind is FetchKind.INCREMENTAL
    assert indexes(context) == [1, 2, 3]
    assert [position.fetch_offset for position in context.session.positions.values()] == [17, 0, 17]
    assert context.session.epoch == 2


def test_unknown_session_is_refused(cache: FetchSessionCache) -> None:
    assert cache.open(fetch(0, session_id=99, epoch=1), WITH_NAMES, nameless, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1])
def test_wrong_session_epoch_is_refused_and_changes_nothing(cache: FetchSessionCache, epoch: int) -> None:
    session_id = kept_session(cache, 0)
    refused = cache.open(fetch(5, session_id=session_id, epoch=epoch), WITH_NAMES, nameless, 0)
    assert refused is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert indexes(opened(cache, fetch(session_id=session_id, epoch=1))) == [0]


def test_retried_request_is_refused_as_its_session_epoch_is_used(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    request = fetch(session_id=session_id, epoch=1)
    assert not opened(cache, request).overtaken
    assert cache.open(request, WITH_NAMES, nameless, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(("named", "is_sent_again"), [(4, True), (5, False), (2**63 - 1, False)])
def test_follower_that_names_another_high_watermark_is_sent_it_again(
    cache: FetchSessionCache, named: int, is_sent_again: bool
) -> None:
    """transactions:5000055: the follower did not count the response, which another request had overtaken."""
    session_id = kept_session(cache, 0, replica_id=2)
    request = fetch(0, session_id=session_id, epoch=1, replica_id=2)
    position = next(iter(opened(cache, request).session.positions.values()))
    reply = PartitionData(high_watermark=5, log_start_offset=0)
    position.remember(reply)
    request = fetch(0, session_id=session_id, epoch=2, replica_id=2)
    request.topics[0].partitions[0].high_watermark = named
    opened(cache, request)
    assert position.must_send(reply) is is_sent_again


def test_response_is_overtaken_by_the_next_request(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    first = opened(cache, fetch(session_id=session_id, epoch=1))
    second = opened(cache, fetch(session_id=session_id, epoch=2))
    assert first.overtaken
    assert not second.overtaken


def test_names_and_ids_do_not_mix_in_a_session(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    error = cache.open(fetch(session_id=session_id, epoch=1), WITH_IDS, nameless, 0)
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_session_with_topic_ids_finds_topics_by_id(cache: FetchSessionCache) -> None:
    names = {TOPIC_ID: "t"}
    context = cache.open(fetch(0, topic_id=TOPIC_ID), WITH_IDS, names.get, 0)
    assert isinstance(context, FetchContext)
    assert cache.keep(context.session, 0)
    unknown = bytes(15) + b"\1"
    later = cache.open(fetch(0, session_id=context.session.id, epoch=1, topic_id=unknown), WITH_IDS, names.get, 0)
    assert isinstance(later, FetchContext)
    assert [(p.topic, p.topic_id) for p in later.session.positions.values()] == [("t", TOPIC_ID), (None, unknown)]


def test_full_fetch_replaces_the_session_that_it_names(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    opened(cache, fetch(1, session_id=session_id, epoch=INITIAL_EPOCH))
    assert len(cache) == 0


def test_final_epoch_closes_the_session(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    context = opened(cache, fetch(1, session_id=session_id, epoch=FINAL_EPOCH))
    assert context.kind is FetchKind.SESSIONLESS
    assert len(cache) == 0


def test_session_without_partitions_ends(cache: FetchSessionCache) -> None:
    session_id = kept_session(cache, 0)
    context = opened(cache, fetch(session_id=session_id, epoch=1, forgotten=(0,)))
    assert context.kind is FetchKind.SESSIONLESS
    assert context.session.id == 0
    assert len(cache) == 0


def test_duplicate_partition_counts_once(cache: FetchSessionCache) -> None:
    assert indexes(opened(cache, fetch(4, 4))) == [4]


def test_position_is_dirty_only_after_a_change(cache: FetchSessionCache) -> None:
    context = opened(cache, fetch(0, 1, 2))
    assert dirty(context) == [0, 1, 2]
    for position in list(context.session.dirty):
        context.session.quiet(position)
    assert cache.keep(context.session, 0)
    later = opened(cache, fetch(1, session_id=context.session.id, epoch=1, offset=5))
    assert dirty(later) == [1]
    later.session.progressed(later.session.positions["t", 2], 0, 10)
    assert dirty(later) == [1, 2]


def test_follower_that_registered_again_has_every_partition_dirty(cache: FetchSessionCache) -> None:
    """B56: what was noted of its former incarnation would keep it out of the ISR for ever, where nothing is written."""

    def fetch_of(incarnation: int, *partitions: int, session_id: int = 0, epoch: int = INITIAL_EPOCH) -> FetchRequest:
        request = fetch(*partitions, session_id=session_id, epoch=epoch)
        request.replica_state = ReplicaState(replica_id=3, replica_epoch=incarnation)
        return request

    session = opened(cache, fetch_of(7, 0, 1)).session
    assert cache.keep(session, 0)
    for position in list(session.dirty):
        session.quiet(position)
    assert dirty(opened(cache, fetch_of(7, session_id=session.id, epoch=1))) == []
    assert dirty(opened(cache, fetch_of(8, session_id=session.id, epoch=2))) == [0, 1]


def test_forgotten_partition_is_not_watched(cache: FetchSessionCache) -> None:
    partition = Partition(TopicPartition("t", 0), ReplicaHost(broker_id=1, spawn=Supervisor().spawn), TopicTraffic())
    context = opened(cache, fetch(0, 1))
    forgotten, kept = context.session.positions.values()
    for position in (forgotten, kept, kept):
        position.watch(partition)
    assert cache.keep(context.session, 0)
    opened(cache, fetch(session_id=context.session.id, epoch=1, forgotten=(0,)))
    assert (forgotten.watched, kept.watched) == (None, partition)
    cache.close()
    assert kept.watched is None


def reply(index: int, *, high_watermark: int = 10, records: bytes = b"") -> PartitionData:
    return PartitionData(partition_index=index, high_watermark=high_watermark, log_start_offset=0, records=records)


def sent(context: FetchContext, *replies: PartitionData) -> list[int]:
    for data in replies:
        context.replies[context.session.positions["t", data.partition_index]] = data
    return [position.partition_index for position, _ in context.replies_to_send()]


def test_full_fetch_returns_everything_and_incremental_fetch_only_changes(cache: FetchSessionCache) -> None:
    full = opened(cache, fetch(0, 1, 2))
    assert sent(full, reply(0), reply(1), reply(2)) == [0, 1, 2]
    assert cache.keep(full.session, 0)
    request = fetch(session_id=full.session.id, epoch=1)
    assert sent(opened(cache, request), reply(0), reply(1, high_watermark=11), reply(2)) == [1]


@pytest.mark.parametrize(
    "news",
    [
        {"records": b"abc"},
        {"log_start_offset": 3},
        {"high_watermark": 12},
        {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=4)},
    ],
    ids=lambda news: next(iter(news)),
)
def test_changed_partition_is_sent(cache: FetchSessionCache, news: dict[str, object]) -> None:
    full = opened(cache, fetch(0, 1))
    sent(full, reply(0), reply(1))
    assert cache.keep(full.session, 0)
    data = reply(1)
    for name, value in news.items():
        setattr(data, name, value)
    assert sent(opened(cache, fetch(session_id=full.session.id, epoch=1)), reply(0), data) == [1]


def test_partition_is_sent_again_when_its_error_has_gone(cache: FetchSessionCache) -> None:
    full = opened(cache, fetch(0))
    sent(full, reply(0))
    assert cache.keep(full.session, 0)
    failed = PartitionData(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1)
    assert sent(opened(cache, fetch(session_id=full.session.id, epoch=1)), failed) == [0]
    assert sent(opened(cache, fetch(session_id=full.session.id, epoch=2)), reply(0)) == [0]
    assert sent(opened(cache, fetch(session_id=full.session.id, epoch=3)), reply(0)) == []


def test_partition_that_returned_records_goes_to_the_back(cache: FetchSessionCache) -> None:
    context = opened(cache, fetch(0, 1, 2))
    sent(context, reply(0, records=b"x"), reply(1), reply(2))
    assert dirty(context) == [1, 2, 0]


def test_young_session_is_not_evicted_without_room(cache: FetchSessionCache) -> None:
    kept_session(cache, 0)
    kept_session(cache, 0)
    assert not cache.keep(opened(cache, fetch(0, 1, 2)).session, EVICTION_MS)
    assert len(cache) == 2


def test_idle_session_is_evicted(cache: FetchSessionCache) -> None:
    idle = kept_session(cache, 0, 1, 2)
    busy = kept_session(cache, 0)
    opened(cache, fetch(session_id=busy, epoch=1), now_ms=EVICTION_MS)
    assert cache.keep(opened(cache, fetch(0)).session, EVICTION_MS + 1)
    assert cache.open(fetch(session_id=idle, epoch=1), WITH_NAMES, nameless, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evictions == 1


def test_bigger_session_evicts_the_smallest_old_one(cache: FetchSessionCache) -> None:
    large, small = kept_session(cache, 0, 1, 2), kept_session(cache, 0, 1)
    now = EVICTION_MS + 1
    for session_id in (large, small):
        opened(cache, fetch(session_id=session_id, epoch=1), now_ms=now)
    assert not cache.keep(opened(cache, fetch(0)).session, now)
    assert cache.keep(opened(cache, fetch(0, 1)).session, now)
    assert isinstance(cache.open(fetch(session_id=large, epoch=2), WITH_NAMES, nameless, now), FetchContext)
    assert cache.open(fetch(session_id=small, epoch=2), WITH_NAMES, nameless, now) is (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_follower_session_evicts_any_consumer_and_no_follower(cache: FetchSessionCache) -> None:
    follower = kept_session(cache, 0, 1, replica_id=2)
    consumer = kept_session(cache, 0, 1, 2, 3)
    assert cache.keep(opened(cache, fetch(0, replica_id=3)).session, 1)
    assert isinstance(cache.open(fetch(session_id=follower, epoch=1), WITH_NAMES, nameless, 1), FetchContext)
    gone = cache.open(fetch(session_id=consumer, epoch=1), WITH_NAMES, nameless, 1)
    assert gone is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not cache.keep(opened(cache, fetch(0, 1, 2, replica_id=4)).session, 1)


def test_replica_id_is_read_from_replica_state_since_version_15(cache: FetchSessionCache) -> None:
    request = fetch(0)
    request.replica_state = ReplicaState(replica_id=3, replica_epoch=1)
    assert opened(cache, request).session.privileged


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.integers(0, 9)), min_size=1, max_size=12
    )
)
def test_session_has_the_partitions_of_its_requests(requests: list[tuple[set[int], set[int], int]]) -> None:
    """Model: a dict from partition to offset, additions first and then what is forgotten."""
    cache = FetchSessionCache(slots=1, rng=Random(1))
    session_id, epoch = kept_session(cache, 9), 1
    model = {9: 0}
    for added, forgotten, offset in requests:
        context = opened(
            cache,
            fetch(*sorted(added), session_id=session_id, epoch=epoch, offset=offset, forgotten=tuple(forgotten)),
        )
        model |= dict.fromkeys(added, offset)
        for index in forgotten:
            model.pop(index, None)
        epoch = next_epoch(epoch)
        positions = context.session.positions.values()
        assert {position.partition_index: position.fetch_offset for position in positions} == model
        assert {position.partition_index for position in context.session.dirty} <= model.keys()


def unknown(count: int, first: int = 0, *, session: tuple[int, int] = (0, 0)) -> FetchRequest:
    """A fetch of partitions of a topic that does not exist."""
    partitions = [FetchPartition(partition=index) for index in range(first, first + count)]
    topics = [FetchTopic(topic="unknown", partitions=partitions)]
    return FetchRequest(session_id=session[0], session_epoch=session[1], topics=topics)


def test_sessions_of_unknown_partitions_are_kept_up_to_a_bound_of_memory() -> None:
    cache = FetchSessionCache(slots=1_000, rng=Random(1), max_cost_bytes=1 << 20)
    kept = 0
    for _ in range(100):
        context = cache.open(unknown(100), 12, no_topic_ids, 0)
        assert isinstance(context, FetchContext)
        kept += cache.keep(context.session, 0)
    assert 0 < kept == len(cache) < 100
    assert cache.cost_bytes <= 1 << 20
    cache.close()
    assert cache.cost_bytes == 0


def test_session_that_grows_beyond_the_bound_of_memory_ends() -> None:
    cache = FetchSessionCache(slots=1_000, rng=Random(1), max_cost_bytes=1 << 20)
    context = cache.open(unknown(100), 12, no_topic_ids, 0)
    assert isinstance(context, FetchContext)
    assert cache.keep(context.session, 0)
    epoch, outcome = 1, None
    while outcome is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        assert cache.cost_bytes <= 1 << 20
        outcome = cache.open(unknown(100, epoch * 100, session=(context.session.id, epoch)), 12, no_topic_ids, 0)
        epoch += 1
    assert (len(cache), cache.cost_bytes) == (0, 0)


def test_session_that_forgets_partitions_costs_less() -> None:
    cache = FetchSessionCache(slots=1_000, rng=Random(1))
    context = cache.open(unknown(100), 12, no_topic_ids, 0)
    assert isinstance(context, FetchContext)
    assert cache.keep(context.session, 0)
    before = cache.cost_bytes
    forget = FetchRequest(
        session_id=context.session.id,
        session_epoch=1,
        forgotten_topics_data=[ForgottenTopic(topic="unknown", partitions=list(range(50)))],
    )
    cache.open(forget, 12, no_topic_ids, 0)
    assert cache.cost_bytes == before // 2


def no_topic_ids(topic_id: bytes) -> str | None:
    return None
