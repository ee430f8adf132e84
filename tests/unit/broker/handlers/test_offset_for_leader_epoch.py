import pytest

from oncelog.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide


def end_of(broker: ReplicaSide, epoch: int, *, index: int = 0, current: int = -1, version: int = 4) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])
    (topic,) = broker.respond(handle_offset_for_leader_epoch, request, version).topics
    (result,) = topic.partitions
    assert isinstance(result, EpochEndOffset)
    return result


@pytest.fixture
def broker() -> ReplicaSide:
    """Epoch 2 has offsets 0 and 1, epoch 5 offset 2."""
    broker = ReplicaSide()
    broker.lead(epoch=2)
    broker.append(batch(b"a", b"b"))
    broker.lead(epoch=5)
    broker.append(batch(b"c"))
    return broker


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(2, (2, 2)), (3, (2, 2)), (4, (2, 2)), (5, (5, 3)), (6, (-1, -1)), (1, (1, 0)), (-1, (-1, -1))],
)
def test_offset_for_leader_epoch_returns_the_end_of_the_epoch(
    broker: ReplicaSide, epoch: int, expected: tuple[int, int], version: int
) -> None:
    """B50: an epoch that is missing here returns the largest one below it."""
    result = end_of(broker, epoch, version=version)
    assert (result.error_code, result.leader_epoch, result.end_offset) == (0, *expected)


@pytest.mark.parametrize(
    ("current", "expected"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_stale_leader_epoch_is_fenced(broker: ReplicaSide, current: int, expected: ErrorCode) -> None:
    """B51"""
    assert end_of(broker, 2, current=current).error_code == expected


def test_offset_for_leader_epoch_of_unavailable_partitions_has_their_errors(broker: ReplicaSide) -> None:
    assert end_of(broker, 2, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.lead(epoch=6, leader=OTHER, replicas=(ME, OTHER))
    assert end_of(broker, 2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.authorizer = OnlyTopics()
    assert end_of(broker, 2).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
