import pytest

from oncelog.broker.handlers.delete_records import handle_delete_records
from oncelog.broker.storage.log_config import LogConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time


def delete(broker: ReplicaSide, topic: str, *requested: tuple[int, int], version: int = 2) -> list[tuple[int, int]]:
    """(low watermark, error) of each (partition, offset)."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in requested]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    (result,) = broker.respond(handle_delete_records, request, version).topics
    return [(partition.low_watermark, partition.error_code) for partition in result.partitions]


@pytest.fixture
def broker() -> ReplicaSide:
    broker = ReplicaSide()
    broker.lead("t", 2)
    broker.append(batch(b"a", b"b", b"c"))
    return broker


@pytest.mark.parametrize("version", range(3))
def test_delete_records_moves_the_log_start_to_the_offset(broker: ReplicaSide, version: int) -> None:
    assert delete(broker, "t", (0, 2), version=version) == [(2, 0)]
    log = broker.partition().log
    assert log is not None
    assert log.log_start_offset == 2


def test_delete_records_below_the_log_start_changes_nothing(broker: ReplicaSide) -> None:
    delete(broker, "t", (0, 2))
    assert delete(broker, "t", (0, 1)) == [(2, 0)]


def test_delete_records_up_to_minus_one_deletes_to_the_high_watermark(broker: ReplicaSide) -> None:
    assert delete(broker, "t", (0, -1), (1, -1)) == [(3, 0), (0, 0)]


def test_delete_records_beyond_the_high_watermark_is_refused(broker: ReplicaSide) -> None:
    expected = (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(broker, "t", (0, 4), (0, -2)) == [expected, expected]


def test_delete_records_that_is_refused_has_its_error(broker: ReplicaSide) -> None:
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    broker.lead("both", config=LogConfig(cleanup_policy=frozenset({"compact", "delete"})))
    broker.lead("__consumer_offsets")
    broker.lead("elsewhere", leader=OTHER, replicas=(OTHER,))
    broker.authorizer = OnlyTopics("compacted", "both", "__consumer_offsets", "elsewhere", "unknown")
    for topic, error in [
        ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("compacted", ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]:
        assert delete(broker, topic, (0, 0)) == [(-1, error)]
    assert delete(broker, "both", (0, 0)) == [(0, 0)]


def test_live_producer_outlives_its_deleted_records(broker: ReplicaSide) -> None:
    """B32: its epoch and its last sequences are known, although no record of it is left."""
    broker.append(batch(producer_id=5, epoch=0, sequence=0), index=1)
    delete(broker, "t", (1, -1))
    assert broker.append(batch(producer_id=5, epoch=0, sequence=0), index=1).duplicate
    assert broker.append(batch(producer_id=5, epoch=0, sequence=1), index=1).base_offset == 1
    assert broker.append(batch(producer_id=5, epoch=0, sequence=1), index=1).duplicate


def asking(*requested: tuple[int, int], timeout_ms: int = 1000) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in requested]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=timeout_ms)


def replicated() -> ReplicaSide:
    """Two records that the follower has, too."""
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    broker.append(batch(b"a", b"b"))
    broker.follower_fetched(2)
    return broker


@in_virtual_time
async def test_delete_records_response_waits_until_the_follower_has_deleted() -> None:
    broker = replicated()
    response = broker.call(handle_delete_records, asking((0, -1)), 2)
    await end_of_turn()
    assert not response.done()
    broker.follower_fetched(2, log_start_offset=1)
    assert not response.done()
    broker.follower_fetched(2, log_start_offset=2)
    ((result,),) = (topic.partitions for topic in (await response).topics)
    assert (result.low_watermark, result.error_code) == (2, ErrorCode.NONE)


@in_virtual_time
async def test_delete_records_times_out_when_a_follower_does_not_delete() -> None:
    broker = replicated()
    response = await broker.call(handle_delete_records, asking((0, 1), timeout_ms=500), 2)
    ((result,),) = (topic.partitions for topic in response.topics)
    assert (result.low_watermark, result.error_code) == (-1, ErrorCode.REQUEST_TIMED_OUT)
    broker.follower_fetched(2, log_start_offset=1)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT


@in_virtual_time
async def test_lost_leadership_completes_a_waiting_delete_records() -> None:
    broker = replicated()
    response = broker.call(handle_delete_records, asking((0, 1)), 2)
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    ((result,),) = (topic.partitions for topic in (await response).topics)
    assert (result.low_watermark, result.error_code) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
