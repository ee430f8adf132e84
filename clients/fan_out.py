"""Requests to several brokers at the same time: to the leaders of partitions, or to every broker of the cluster."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from oncelog.clients.cluster import NOT_FINAL_FROM_A_LEADER, Cluster
from oncelog.clients.errors import ClientError, Refusal, error_code
from oncelog.clients.partition_results import PartitionResults
from oncelog.clients.retry import Retry
from oncelog.clients.routes import Node
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)
Item = TypeVar("Item")
Result = TypeVar("Result")

Split: TypeAlias = Callable[[R], Iterable[tuple[TopicPartition, int, Result]]]
"""Yields (partition, error number, result) for each partition in a response."""

_LEFT_OUT: Final = Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the broker did not say")


async def send_to_each(
    cluster: Cluster,
    requests: Mapping[int, Message],
    response_type: type[R],
    seconds: float,
    *,
    at_least: int = 0,
    at_most: int | None = None,
) -> dict[int, R | Refusal]:
    """Send one request to each broker, by its id. Return the responses, or why there is none within ``seconds``."""
    responses: dict[int, R | Refusal] = {}

    async def send(node_id: int, request: Message) -> None:
        try:
            connection = await connection_within(cluster, node_id, seconds)
            responses[node_id] = await connection.send(
                request, response_type, at_least=at_least, at_most=at_most, timeout=seconds
            )
        except ClientError as error:
            responses[node_id] = Refusal.without_response(error)

    async with asyncio.TaskGroup() as group:
        for node_id, request in requests.items():
            group.create_task(send(node_id, request))
    return responses


async def call_every_broker(
    cluster: Cluster,
    request: Message,
    response_type: type[R],
    errors: Callable[[R], Iterable[int]],
    *,
    at_least: int = 0,
) -> list[tuple[int, R]]:
    """Return the final response of each broker of the cluster, with its id. Raises ``ClientError`` if one has none."""
    await cluster.refresh(())
    responses: dict[int, R] = {}
    failures: dict[int, ClientError] = {}

    async def call(node_id: int) -> None:
        try:
            responses[node_id] = await cluster.call(
                Node(node_id), request, response_type, errors=errors, at_least=at_least
            )
        except ClientError as error:
            failures[node_id] = error

    async with asyncio.TaskGroup() as group:
        for node_id in cluster.brokers:
            group.create_task(call(node_id))
    for _, failure in sorted(failures.items()):
        raise failure
    return sorted(responses.items())


async def call_leaders(
    cluster: Cluster,
    items: Mapping[TopicPartition, Item],
    build: Callable[[Mapping[TopicPartition, Item]], Message],
    response_type: type[R],
    split: Split[R, Result],
    *,
    at_most: int | None = None,
) -> PartitionResults[Result]:
    """Call the leader of each partition. ``build`` makes the request for some of the items.

    Partitions whose error may pass are sent again, to the leader that new metadata names.
    """
    retry = cluster.attempts()
    found: dict[TopicPartition, Result] = {}
    failed: dict[TopicPartition, Refusal] = {}
    pending = dict(items)
    while pending:
        by_leader, errors = await _group_by_leader(cluster, pending)
        requests = {
            leader: build({topic_partition: items[topic_partition] for topic_partition in partitions})
            for leader, partitions in by_leader.items()
        }
        responses = await send_to_each(cluster, requests, response_type, retry.attempt_seconds, at_most=at_most)
        for leader, response in responses.items():
            if isinstance(response, Refusal):
                # An attempt that had no time left says less than the one before it.
                before = {} if retry.remaining_seconds > 0 else failed
                errors |= {each: before.get(each, response) for each in by_leader[leader]}
                continue
            errors |= dict.fromkeys(by_leader[leader], _LEFT_OUT)
            for topic_partition, error, result in split(response):
                errors[topic_partition] = Refusal(error=error_code(error))
                if error == ErrorCode.NONE:
                    found[topic_partition] = result
        failed |= errors
        pending = {topic_partition: items[topic_partition] for topic_partition in pending.keys() - found.keys()}
        pending = await _pause_before_retry(cluster, pending, failed, retry)
    return PartitionResults.of(found, failed)


async def _group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, Refusal]]:
    """Return the partitions of each leader, and an error for each partition without a leader."""
    partitions = list(partitions)
    topics = await cluster.topics({topic_partition.topic for topic_partition in partitions})
    known = _partitions(topics)
    by_leader: dict[int, list[TopicPartition]] = {}
    failed: dict[TopicPartition, Refusal] = {}
    for topic_partition in partitions:
        partition = known.get(topic_partition)
        if partition is None:
            error = topics[topic_partition.topic].error_code
            failed[topic_partition] = Refusal(error=error_code(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif partition.leader_id not in cluster.brokers:
            failed[topic_partition] = Refusal(error=ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader.setdefault(partition.leader_id, []).append(topic_partition)
    return by_leader, failed


async def _pause_before_retry(
    cluster: Cluster, items: dict[TopicPartition, Item], failed: Mapping[TopicPartition, Refusal], retry: Retry
) -> dict[TopicPartition, Item]:
    """Return, after a pause, the items to send again: their errors may pass, and their partitions still exist."""
    passing = {tp: item for tp, item in items.items() if failed[tp].error in NOT_FINAL_FROM_A_LEADER}
    for topic_partition in passing:
        cluster.metadata.forget(topic_partition.topic)
        if failed[topic_partition].cause is None:  # Else the obstacle has an address.
            error = failed[topic_partition].error
            cluster.note_obstacle("leaders", f"{topic_partition}: {error.name}", error)
    if not passing or not await retry.pause():
        return {}
    known = _partitions(await cluster.topics({topic_partition.topic for topic_partition in passing}))
    return {topic_partition: item for topic_partition, item in passing.items() if topic_partition in known}


def _partitions(topics: Mapping[str, MetadataResponseTopic]) -> dict[TopicPartition, MetadataResponsePartition]:
    return {
        TopicPartition(name, partition.partition_index): partition
        for name, topic in topics.items()
        for partition in topic.partitions
    }
