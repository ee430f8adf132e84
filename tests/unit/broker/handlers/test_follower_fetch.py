"""Fetches of followers, and fetches of consumers at followers, against real logs."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.config.broker_config import RACK_AWARE_SELECTOR
from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.isr_checks import IsrChecks
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replication_quota import ReplicationQuota
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tests.unit.broker.batches import batch, with_header
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

SESSIONLESS = -1
NEW_SESSION = 0
CONSUMER = -1


class NoFetchers:
    """Nothing is copied by itself."""

    def follow(self, partition: Partition) -> None:
        pass

    def unfollow(self, topic_partition: tuple[str, int]) -> None:
        pass


def member(*, quota: ReplicationQuota | None = None, **config: Any) -> tuple[ReplicaSide, list[IsrProposal]]:
    """A broker among others, and what it proposes."""
    proposals: list[IsrProposal] = []
    host = {
        "propose_isr": proposals.append,
        "broker_epoch": lambda: 1,
        "is_alive": lambda broker_id: broker_id in broker.metadata.image.brokers,
        "replica_lag_time_max_ms": 1_000,
        "quota": quota,
    }
    broker = ReplicaSide(host=host, fetchers=NoFetchers(), **config)
    IsrChecks(broker.replica_manager, broker.metadata)
    return broker, proposals


def leader(
    count: int = 1,
    *,
    isr: tuple[int, ...] = (ME, OTHER),
    epoch: int = 0,
    registered_epochs: dict[int, int] | None = None,
    **config: Any,
) -> ReplicaSide:
    broker, _ = member(**config)
    broker.registered_epochs = registered_epochs or {}
    broker.lead("t", count, replicas=(ME, OTHER), isr=isr, epoch=epoch)
    return broker


def fetch(
    *requested: tuple[int, int],
    replica_id: int = OTHER,
    version: int = 17,
    epoch: int = -1,
    session: tuple[int, int] = (0, SESSIONLESS),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    rack_id: str = "",
) -> FetchRequest:
    """Each of ``requested`` is (partition, offset)."""
    partitions = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=0,
        )
        for index, offset in requested
    ]
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=epoch) if version >= 15 else None,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", topic_id=topic_id("t"), partitions=partitions)] if partitions else [],
        rack_id=rack_id,
    )


def replies(response: FetchResponse) -> dict[int, PartitionData]:
    return {reply.partition_index: reply for topic in response.responses for reply in topic.partitions}


def read(broker: ReplicaSide, request: FetchRequest, version: int = 17) -> PartitionData:
    (reply,) = replies(broker.respond(handle_fetch, request, version)).values()
    return reply


def size(reply: PartitionData) -> int:
    assert isinstance(reply.records, bytes | bytearray | memoryview)
    return len(reply.records)


def new_session(broker: ReplicaSide, *requested: tuple[int, int], **fields: Any) -> int:
    response: FetchResponse = broker.respond(handle_fetch, fetch(*requested, session=(0, NEW_SESSION), **fields), 17)
    assert response.session_id > 0
    return response.session_id


@pytest.mark.parametrize("version", [12, 15])
@in_virtual_time
async def test_follower_fetch_reads_to_the_log_end_and_replicates_records(version: int) -> None:
    broker = leader()
    broker.append(batch(b"a", b"b"))
    reply = read(broker, fetch((0, 0), version=version), version)
    assert (reply.error_code, reply.high_watermark, size(reply)) == (0, 0, len(batch(b"a", b"b")))
    assert reply.aborted_transactions is None
    reply = read(broker, fetch((0, 2), version=version), version)
    assert (reply.high_watermark, size(reply)) == (2, 0)


@pytest.mark.parametrize("replica_id", [OTHER, CONSUMER])
@in_virtual_time
async def test_fetch_that_may_return_less_than_its_minimum_does_not_wait_for_that(replica_id: int) -> None:
    broker = leader(isr=(ME,))
    broker.append(batch(b"a"))
    request = fetch((0, 0), replica_id=replica_id, max_wait_ms=60_000, min_bytes=10_000, max_bytes=1)
    assert size(read(broker, request)) == len(batch(b"a"))


@in_virtual_time
async def test_follower_fetch_of_an_unauthorized_client_is_refused() -> None:
    broker = leader()
    broker.authorizer = OnlyTopics("t")
    assert read(broker, fetch((0, 0))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("session_id", "session_epoch"), [(1, 0), (1, 1), (0, NEW_SESSION), (1, SESSIONLESS)])
@in_virtual_time
async def test_unauthorized_fetch_in_the_name_of_a_follower_changes_nothing_of_it(
    session_id: int, session_epoch: int
) -> None:
    """Neither its session, nor how far it is, nor when it was heard of."""
    broker = leader()
    broker.append(batch(b"a"))
    session = new_session(broker, (0, 0), epoch=1)
    contacts = broker.replica_manager.host.contacts
    contacts.limit(1_000, 0)
    contacts.expect(OTHER, now_ms())
    await asyncio.sleep(10)
    allowed, broker.authorizer = broker.authorizer, OnlyTopics("t")
    named = (session * session_id, session_epoch)
    assert broker.respond(handle_fetch, fetch((0, 1), session=named, epoch=99), 17).session_id == 0
    assert contacts.update_silent(now_ms(), 0)
    assert contacts.silent == {OTHER}
    leading = broker.leading()
    assert (leading.log.high_watermark, leading.progress.followers[OTHER].end) == (0, 0)
    broker.authorizer = allowed
    response = broker.respond(handle_fetch, fetch(session=(session, 1), epoch=1), 17)
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, session)


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)


@pytest.mark.parametrize(("epoch", "expected"), [(0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 6)])
@in_virtual_time
async def test_follower_fetch_of_a_broker_without_replica_is_refused(epoch: int, expected: int) -> None:
    broker = leader()
    assert read(broker, fetch((0, 0), replica_id=9, leader_epoch=epoch)).error_code == expected


@in_virtual_time
async def test_follower_never_reads_from_a_follower() -> None:
    broker, _ = member()
    broker.lead(leader=OTHER, replicas=(ME, OTHER))
    assert read(broker, fetch((0, 0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_follower_fetch_that_diverged_acknowledges_nothing() -> None:
    """B60: it will cut that off."""
    broker = leader(epoch=2)
    broker.append(batch(b"a", b"b", b"c"))
    broker.lead("t", replicas=(ME, OTHER), epoch=5)
    reply = read(broker, fetch((0, 3), last_fetched_epoch=4, leader_epoch=5, max_wait_ms=1_000))
    assert reply.diverging_epoch == EpochEndOffset(epoch=2, end_offset=3)
    leading = broker.partition().leading
    assert leading is not None
    assert (leading.log.high_watermark, leading.progress.followers[OTHER].end) == (0, -1)
    assert read(broker, fetch((0, 3), last_fetched_epoch=2, leader_epoch=5)).high_watermark == 3


@pytest.mark.parametrize(("offset", "last_epoch"), [(4, -1), (0, 2), (1, 6)])
@in_virtual_time
async def test_follower_fetch_outside_the_log_or_of_an_unknown_epoch_is_out_of_range(
    offset: int, last_epoch: int
) -> None:
    broker = leader(isr=(ME,), epoch=2)
    for _ in range(3):
        broker.append(batch())
    broker.leading().delete_records(1)
    reply = read(broker, fetch((0, offset), last_fetched_epoch=last_epoch))
    assert reply.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert broker.leading().progress.followers[OTHER].end == -1


@in_virtual_time
async def test_append_wakes_a_follower_though_nothing_is_replicated() -> None:
    broker = leader()
    session_id = new_session(broker, (0, 0))
    response = broker.call(handle_fetch, fetch(session=(session_id, 1), max_wait_ms=60_000), 17)
    await end_of_turn()
    assert not response.done()
    broker.append(batch(b"a"))
    await end_of_turn()
    reply = replies(response.result())[0]
    assert (size(reply), reply.high_watermark) == (len(batch(b"a")), 0)


@in_virtual_time
async def test_follower_gets_a_new_high_watermark_soon() -> None:
    """Also when it is itself who had been waited for, and when it had been told that there is nothing."""
    broker = leader()
    loop = asyncio.get_running_loop()
    broker.append(batch(b"a"))
    session_id = new_session(broker, (0, 0))
    began = loop.time()
    response = await broker.call(handle_fetch, fetch((0, 1), session=(session_id, 1), max_wait_ms=60_000), 17)
    assert replies(response)[0].high_watermark == 1
    assert loop.time() - began < 0.05


@pytest.mark.parametrize("min_bytes", [1, 100])
@in_virtual_time
async def test_fetch_that_releases_an_append_to_a_visited_partition_returns_it_in_the_same_turn(min_bytes: int) -> None:
    broker = leader(2)
    broker.append(batch(b"a"), index=0)
    broker.append(batch(b"prepared"), index=1)
    session_id = new_session(broker, (0, 0), (1, 0))
    completed = batch(b"completed" * 20)

    def complete(error: ErrorCode) -> None:
        assert not error
        broker.append(completed, index=0)

    broker.leading(index=1).when_replicated(1, complete)
    request = fetch((0, 1), (1, 1), session=(session_id, 1), max_wait_ms=60_000)
    request.min_bytes = min_bytes
    response = broker.call(handle_fetch, request, 17)
    await end_of_turn()
    assert size(replies(response.result())[0]) == len(completed)


@in_virtual_time
async def test_fetch_that_advances_the_high_watermark_of_a_visited_partition_returns_it_soon() -> None:
    third = OTHER + 1
    broker, _ = member()
    broker.lead("t", 2, replicas=(ME, OTHER, third))
    for index in (0, 1):
        broker.append(batch(b"a"), index=index)
    broker.follower_fetched(1, index=1, replica_id=third)
    session_id = new_session(broker, (0, 0), (1, 0))
    broker.leading(index=1).when_replicated(1, lambda _: broker.follower_fetched(1, index=0, replica_id=third))
    loop = asyncio.get_running_loop()
    began = loop.time()
    request = fetch((0, 1), (1, 1), session=(session_id, 1), max_wait_ms=60_000)
    response = await broker.call(handle_fetch, request, 17)
    assert replies(response)[0].high_watermark == 1
    assert loop.time() - began < 0.05


@in_virtual_time
async def test_follower_whose_fetch_is_overtaken_gets_the_high_watermark_nevertheless() -> None:
    """Else it would not know what is replicated until somebody writes, and consumers who read there neither."""
    broker = leader(2)
    broker.append(batch(b"a"))
    session_id = new_session(broker, (0, 0), (1, 0))
    overtaken = broker.call(handle_fetch, fetch((0, 1), session=(session_id, 1), max_wait_ms=500), 17)
    response = broker.call(handle_fetch, fetch((1, 0), session=(session_id, 2), max_wait_ms=500), 17)
    assert (await overtaken).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert replies(await response)[0].high_watermark == 1


@in_virtual_time
async def test_follower_fetch_acknowledges_all_partitions_whatever_has_room() -> None:
    broker = leader(3)
    for index in range(3):
        broker.append(batch(bytes(1000)), index=index)
    session_id = new_session(broker, (0, 0), (1, 0), (2, 0), max_bytes=1)
    for index in range(3):
        broker.append(batch(bytes(1000)), index=index)
    request = fetch((0, 1), (1, 1), (2, 1), session=(session_id, 1), max_bytes=1)
    response = broker.respond(handle_fetch, request, 17)
    assert [size(reply) > 0 for reply in replies(response).values()].count(True) == 1
    for index in range(3):
        leading = broker.partition("t", index).leading
        assert leading is not None
        assert leading.log.high_watermark == 1


@in_virtual_time
async def test_follower_fetch_of_an_unknown_partition_returns_at_once() -> None:
    """It asks again soon. If the fetch waited, who produces to the new partition would wait, too."""
    broker = leader()
    session_id = new_session(broker, (0, 0))
    requested = fetch((1, 0), session=(session_id, 1), max_wait_ms=60_000)
    refused = replies(broker.respond(handle_fetch, requested, 17))
    assert refused[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.lead("t", 1, first=1, replicas=(ME, OTHER))
    again = fetch((1, 0), session=(session_id, 2))
    assert replies(broker.respond(handle_fetch, again, 17))[1].error_code == 0
    assert broker.leading("t", 1).progress.followers[OTHER].end == 0


@in_virtual_time
async def test_busy_follower_that_is_idle_in_one_partition_is_caught_up_there() -> None:
    """Its requests do not name that partition, and the partition is not looked at."""
    broker = leader(2)
    session_id = new_session(broker, (0, 0), (1, 0))
    for epoch in range(1, 20):
        await asyncio.sleep(0.3)
        broker.respond(handle_fetch, fetch(session=(session_id, epoch)), 17)
    broker.append(batch(b"a"))
    broker.leading().check_followers()
    assert broker.leading().progress.followers[OTHER].is_close


@in_virtual_time
async def test_follower_that_restarted_leaves_no_session_behind() -> None:
    broker = leader()
    new_session(broker, (0, 0), epoch=4)
    assert len(broker.partition().watchers) == 1
    new_session(broker, (0, 0), epoch=5)
    assert len(broker.partition().watchers) == 1
    assert len(broker.replica_manager.fetch_sessions) == 1


# Consumers


def follower() -> ReplicaSide:
    """A follower with three records, of which it knows two to be replicated."""
    broker, _ = member()
    broker.lead(leader=OTHER, replicas=(ME, OTHER))
    log = broker.partition().log
    assert log is not None
    for value in (b"a", b"b", b"c"):
        view, header = with_header(batch(value))
        log.append_as_leader(view, header, 0, AppendOrigin.CLIENT)
    broker.following().append(b"", high_watermark=2, log_start_offset=0)
    return broker


def consume(*requested: tuple[int, int], version: int = 17, **fields: Any) -> FetchRequest:
    request = fetch(*requested, version=version, **fields)
    request.replica_id, request.replica_state = CONSUMER, None
    return request


@in_virtual_time
async def test_consumer_reads_from_a_follower_what_that_knows_to_be_replicated() -> None:
    """KIP-392. Beyond the end of its log there may be more elsewhere, so a consumer is not told to begin anew."""
    broker = follower()
    reply = read(broker, consume((0, 0)))
    assert (reply.error_code, reply.high_watermark, size(reply)) == (0, 2, 2 * len(batch(b"a")))
    assert read(broker, consume((0, 3))).records == b""
    assert read(broker, consume((0, 4))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read(broker, consume((0, 0), leader_epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert read(broker, consume((0, 0), version=10), 10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_consumer_at_a_follower_is_woken_by_what_becomes_replicated() -> None:
    broker = follower()
    response = broker.call(handle_fetch, consume((0, 2), max_wait_ms=60_000), 17)
    await end_of_turn()
    assert not response.done()
    broker.following().append(b"", high_watermark=3, log_start_offset=0)
    assert size(replies(await response)[0]) == len(batch(b"c"))


@in_virtual_time
async def test_fetch_from_a_stopped_replica_is_refused() -> None:
    broker = follower()
    broker.partition().stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert read(broker, consume((0, 0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def near(broker: ReplicaSide, rack_id: str, offset: int = 0) -> PartitionData:
    return read(broker, consume((0, offset), rack_id=rack_id, max_wait_ms=60_000))


@in_virtual_time
async def test_consumer_is_referred_to_a_follower_in_its_rack() -> None:
    """KIP-392: one that is in sync and has what the consumer wants."""
    broker = leader(replica_selector_class=RACK_AWARE_SELECTOR)
    broker.append(batch(b"a", b"b"))
    broker.follower_fetched(2)
    reply = near(broker, f"rack-{OTHER}")
    assert (reply.preferred_read_replica, reply.records, reply.error_code) == (OTHER, b"", 0)
    for rack_id in ("", f"rack-{ME}", "elsewhere"):
        reply = near(broker, rack_id)
        assert (reply.preferred_read_replica, size(reply) > 0) == (-1, True)


@in_virtual_time
async def test_follower_that_lacks_the_offset_or_is_out_of_sync_is_not_named() -> None:
    broker = leader(replica_selector_class=RACK_AWARE_SELECTOR)
    broker.append(batch(b"a", b"b"))
    broker.follower_fetched(1)
    assert near(broker, f"rack-{OTHER}", 0).preferred_read_replica == OTHER
    assert read(broker, consume((0, 2), rack_id=f"rack-{OTHER}")).preferred_read_replica == -1
    broker.lead("t", replicas=(ME, OTHER), isr=(ME,), epoch=1)
    assert near(broker, f"rack-{OTHER}", 0).preferred_read_replica == -1


@in_virtual_time
async def test_consumer_without_replica_selector_reads_from_the_leader() -> None:
    broker = leader()
    broker.append(batch(b"a"))
    broker.follower_fetched(1)
    assert near(broker, f"rack-{OTHER}").preferred_read_replica == -1


@in_virtual_time
async def test_follower_contact_time_is_that_of_the_response_before_its_request() -> None:
    """It may itself have lain unread, while the process was stopped and another broker was elected."""
    broker = leader()
    session = new_session(broker, (0, 0))
    for epoch in (1, 2):
        await asyncio.sleep(0.7)
        assert not broker.leading().is_deserted
        broker.respond(handle_fetch, fetch(session=(session, epoch)), 17)
    await asyncio.sleep(0.7)
    assert not broker.leading().is_deserted  # It had what it was told 1.4 s ago.
    await asyncio.sleep(0.2)
    assert broker.leading().is_deserted


@in_virtual_time
async def test_follower_without_a_session_makes_contact_by_its_fetches() -> None:
    broker = leader()
    for _ in range(3):
        await asyncio.sleep(1.4)
        read(broker, fetch((0, 0)))
        assert not broker.leading().is_deserted
    await asyncio.sleep(2.1)
    assert broker.leading().is_deserted


@in_virtual_time
async def test_throttle_delays_followers_neither_in_sync_nor_close() -> None:
    """KIP-73. All that is sent of a throttled partition counts."""
    quota = ReplicationQuota()
    quota.set_limit(10)
    quota.throttle("t", None)
    broker, _ = member(quota=quota)
    broker.lead("t", 1, replicas=(ME, OTHER, 3), isr=(ME, OTHER))
    broker.append(batch(b"a" * 100))
    loop = asyncio.get_running_loop()
    assert size(read(broker, fetch((0, 0)))) > 0
    assert quota.is_exceeded(loop.time())
    assert size(read(broker, fetch((0, 0)))) > 0  # It is in sync.
    await asyncio.sleep(1.5)
    assert size(read(broker, fetch((0, 0)))) > 0  # Not any more, but in the ISR as long as nobody decides otherwise.
    assert not broker.leading().progress.followers[OTHER].is_close
    throttled = fetch((0, 0), replica_id=3)
    assert size(read(broker, throttled)) == 0
    await asyncio.sleep(20)
    assert size(read(broker, throttled)) > 0
    assert size(read(broker, throttled)) == 0
