import pytest

from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
CONSUMER, DEBUGGER = -1, -2


def requested(
    timestamp: int,
    *,
    index: int = 0,
    read_committed: bool = False,
    replica_id: int = CONSUMER,
    leader_epoch: int = -1,
) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=leader_epoch)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name="t", partitions=[partition])],
    )


def found(broker: ReplicaSide, request: ListOffsetsRequest, version: int = 11) -> ListOffsetsPartitionResponse:
    (topic,) = broker.respond(handle_list_offsets, request, version).topics
    (partition,) = topic.partitions
    assert isinstance(partition, ListOffsetsPartitionResponse)
    return partition


def offset(broker: ReplicaSide, request: ListOffsetsRequest, version: int = 11) -> tuple[int, int, int]:
    partition = found(broker, request, version)
    assert partition.error_code == ErrorCode.NONE
    return partition.offset, partition.timestamp, partition.leader_epoch


@pytest.fixture
def broker() -> ReplicaSide:
    """Timestamps 10, 30, 20 in epoch 2, then 15 in epoch 4."""
    broker = ReplicaSide()
    broker.lead(epoch=2)
    for timestamp in (10, 30, 20):
        broker.append(batch(timestamp=timestamp))
    broker.lead(epoch=4)
    broker.append(batch(timestamp=15))
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_returns_both_ends_of_the_log(broker: ReplicaSide, version: int) -> None:
    assert offset(broker, requested(LATEST), version) == (4, -1, 4)
    assert offset(broker, requested(EARLIEST), version) == (0, -1, 2)


def test_earliest_offset_moves_with_deleted_records(broker: ReplicaSide) -> None:
    broker.leading().delete_records(3)
    assert offset(broker, requested(EARLIEST)) == (3, -1, 4)
    assert offset(broker, requested(EARLIEST_LOCAL)) == (3, -1, 4)
    assert offset(broker, requested(0)) == (3, 15, 4)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (0, 10, 2)),
        (10, (0, 10, 2)),
        (11, (1, 30, 2)),
        (30, (1, 30, 2)),
        (31, (-1, -1, -1)),
        (MAX_TIMESTAMP, (1, 30, 2)),
        (EARLIEST_LOCAL, (0, -1, 2)),
        (TIERED, (-1, -1, -1)),
        (PENDING, (-1, -1, -1)),
    ],
)
def test_list_offsets_by_timestamp_returns_the_first_record_at_or_after(
    broker: ReplicaSide, timestamp: int, expected: tuple[int, int, int]
) -> None:
    assert offset(broker, requested(timestamp)) == expected


def test_empty_log_has_no_largest_timestamp() -> None:
    broker = ReplicaSide()
    broker.lead()
    assert offset(broker, requested(MAX_TIMESTAMP)) == (-1, -1, -1)
    assert offset(broker, requested(0)) == (-1, -1, -1)
    assert offset(broker, requested(LATEST)) == (0, -1, 0)


@pytest.mark.parametrize(
    ("timestamp", "first_version"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (TIERED, 9), (PENDING, 11), (-7, 12)]
)
def test_special_timestamps_have_their_versions(broker: ReplicaSide, timestamp: int, first_version: int) -> None:
    for version in range(1, 12):
        expected = ErrorCode.NONE if version >= first_version else ErrorCode.UNSUPPORTED_VERSION
        assert found(broker, requested(timestamp), version).error_code == expected


def test_latest_is_what_an_isolation_level_may_read(broker: ReplicaSide) -> None:
    broker.append(batch(timestamp=40, producer_id=1, epoch=0, sequence=0, transactional=True))
    broker.append(batch(timestamp=50))
    assert offset(broker, requested(LATEST))[0] == 6
    assert offset(broker, requested(LATEST, read_committed=True))[0] == 4
    assert offset(broker, requested(35))[0] == 4
    assert offset(broker, requested(35, read_committed=True)) == (-1, -1, -1)
    assert offset(broker, requested(MAX_TIMESTAMP, read_committed=True)) == (-1, -1, -1)
    broker.append(marker(1, commit=True), origin=AppendOrigin.COORDINATOR)
    assert offset(broker, requested(LATEST, read_committed=True))[0] == 7
    assert offset(broker, requested(35, read_committed=True))[0] == 4


@pytest.mark.parametrize("timestamp", [LATEST, 0])
def test_latest_offset_right_after_an_election_is_not_available(timestamp: int) -> None:
    """B81: the end offset that a consumer sees never goes backwards over an election."""
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    broker.append(batch())
    broker.lead(epoch=1, replicas=(ME, OTHER))
    assert found(broker, requested(timestamp), 5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert found(broker, requested(timestamp), 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert offset(broker, requested(EARLIEST))[0] == 0
    assert offset(broker, requested(LATEST, replica_id=DEBUGGER))[0] == 1
    broker.follower_fetched(1)
    assert offset(broker, requested(timestamp))[0] == (1 if timestamp == LATEST else 0)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH), (4, ErrorCode.NONE)],
)
def test_stale_leader_epoch_is_fenced(broker: ReplicaSide, epoch: int, expected: ErrorCode) -> None:
    """B51"""
    assert found(broker, requested(LATEST, leader_epoch=epoch)).error_code == expected


def test_list_offsets_is_served_by_the_leader_unless_any_replica_may(broker: ReplicaSide) -> None:
    broker.lead(epoch=5, leader=OTHER, replicas=(ME, OTHER))
    assert found(broker, requested(EARLIEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offset(broker, requested(EARLIEST, replica_id=DEBUGGER))[0] == 0


def test_list_offsets_of_unknown_and_unauthorized_partitions_is_refused(broker: ReplicaSide) -> None:
    assert found(broker, requested(LATEST, index=7)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.authorizer = OnlyTopics()
    assert found(broker, requested(LATEST)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_partition_requested_twice_is_refused(broker: ReplicaSide) -> None:
    request = requested(LATEST)
    request.topics[0].partitions *= 2
    (topic,) = broker.respond(handle_list_offsets, request, 7).topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_partition_requested_very_often_is_refused_without_delay(broker: ReplicaSide) -> None:
    """To compare each with each would take minutes."""
    request = requested(LATEST)
    request.topics[0].partitions *= 100_000
    (topic,) = broker.respond(handle_list_offsets, request, 7).topics
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.INVALID_REQUEST}


def test_failed_log_returns_kafka_storage_error(broker: ReplicaSide) -> None:
    broker.disk.fail("read", ".log")
    found(broker, requested(25))
    assert found(broker, requested(25)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
