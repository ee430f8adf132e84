import errno

import pytest

from oncelog.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import LOG_DIR, OnlyTopics, ReplicaSide


def describe(broker: ReplicaSide, *requested: tuple[str, int] | None, version: int = 5) -> DescribeLogDirsResponse:
    topics = [DescribableLogDirTopic(topic=name, partitions=[index]) for name, index in filter(None, requested)]
    request = DescribeLogDirsRequest(topics=None if requested == (None,) else topics)
    response = broker.respond(handle_describe_log_dirs, request, version)
    assert isinstance(response, DescribeLogDirsResponse)
    return response


def sizes(response: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    (result,) = response.results
    return {(t.name, p.partition_index): p.partition_size for t in result.topics for p in t.partitions}


@pytest.fixture
def broker() -> ReplicaSide:
    broker = ReplicaSide()
    broker.lead("t", 2)
    broker.lead("u")
    broker.append(batch(b"a"), "t", 1)
    return broker


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_without_topics_lists_all_replicas(broker: ReplicaSide, version: int) -> None:
    response = describe(broker, None, version=version)
    assert sizes(response) == {("t", 0): 0, ("t", 1): len(batch(b"a")), ("u", 0): 0}
    (result,) = response.results
    assert (result.log_dir, result.error_code, result.is_cordoned) == (LOG_DIR, 0, False)
    assert (result.total_bytes, result.usable_bytes) == broker.disk.usage(LOG_DIR)


def test_describe_log_dirs_lists_requested_replicas_that_are_here(broker: ReplicaSide) -> None:
    assert list(sizes(describe(broker, ("t", 1), ("t", 9), ("nowhere", 0)))) == [("t", 1)]
    assert sizes(describe(broker)) == {}


def test_describe_log_dirs_needs_describe_on_the_cluster(broker: ReplicaSide) -> None:
    broker.authorizer = OnlyTopics("t")
    response = describe(broker, None)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not response.results


def test_directory_whose_disk_is_full_has_an_error_beside_its_sizes(broker: ReplicaSide) -> None:
    broker.log_manager.space.note(OSError(errno.ENOSPC, "No space left on device"), "t-0")
    response = describe(broker, None)
    (result,) = response.results
    assert (result.log_dir, result.error_code) == (LOG_DIR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert (result.total_bytes, result.usable_bytes) == broker.disk.usage(LOG_DIR)
    assert sizes(response)["t", 1] == len(batch(b"a"))
