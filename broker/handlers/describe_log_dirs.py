"""DescribeLogDirs (API key 35): what the data directory holds, and how full its volume is.

A broker has one log directory. The offset lag of a partition is how far its log end is behind the high watermark that
it knows of: zero on a leader. While the volume is full, and writes are refused, the directory has KAFKA_STORAGE_ERROR
beside its sizes, so that an operator who describes the cluster sees it. Requested partitions that are not here are left
out, as in Kafka.

Versions: 2 is flexible; 3 has a top-level error; 4 the volume's total and usable bytes; 5 has whether a directory is
cordoned, which ours never is.
"""

from collections.abc import Iterator
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.replication.partition import Partition
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_PARTITION: Final = 8


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions="1-5")
def handle_describe_log_dirs(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    budget = new_budget()
    steps = _describe(broker, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _describe(broker: Broker, request: DescribeLogDirsRequest, budget: WorkBudget) -> Steps[DescribeLogDirsResponse]:
    log_dir = broker.log_manager.log_dir
    try:
        total_bytes, usable_bytes = broker.disk.usage(log_dir)
    except OSError:
        failed = DescribeLogDirsResult(log_dir=log_dir, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return DescribeLogDirsResponse(results=[failed])
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in _requested(broker, request):
        if partition.log is not None:
            name, index = partition.topic_partition
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            lag = max(partition.log.high_watermark - partition.log.log_end_offset, 0)
            topic.partitions.append(
                DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size, offset_lag=lag)
            )
        budget.left -= _UNITS_PER_PARTITION
        if budget.left <= 0:
            yield None
    is_full = broker.log_manager.space.is_full
    described = DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if is_full else ErrorCode.NONE,
        log_dir=log_dir,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        refusing_logs=len(broker.replica_control.refusing),
    )
    return DescribeLogDirsResponse(results=[described])


def _requested(broker: Broker, request: DescribeLogDirsRequest) -> Iterator[Partition]:
    """Yield the requested partitions that are here, each once."""
    if request.topics is None:
        yield from list(broker.replica_manager.partitions())
        return
    for key in dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions):
        partition = broker.replica_manager.partition(key)
        if partition is not None:
            yield partition
