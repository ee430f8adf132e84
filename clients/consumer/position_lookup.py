"""Looks up the positions that partitions lack: committed, by the reset policy, or validated by a new leader.

``look_up`` begins every lookup that can be begun now, in tasks: one request to the coordinator for committed offsets,
and to each leader one for offsets by time (ListOffsets) and one for the ends of epochs (OffsetForLeaderEpoch, KIP-320).
Their results are applied to the partitions, unless these have changed meanwhile. Errors that may pass are retried after
a pause, the others are raised by the next ``poll``.

The rules are those of Kafka's ``OffsetFetcher.java`` and ``OffsetFetcherUtils.java``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from oncelog.clients.by_topic import by_topic
from oncelog.clients.consumer.assigned_partitions import (
    AFTER_METADATA,
    NO_OFFSET,
    AssignedPartition,
    AssignedPartitions,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
)
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, error_code
from oncelog.clients.fan_out import send_to_each
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.topic_partition import TopicPartition

_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1

Committed = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]]


class PositionLookup:
    """The lookups of positions."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        partitions: AssignedPartitions,
        metadata: ConsumerMetadata,
        committed: Committed | None,
        wake: Callable[[], None],
    ) -> None:
        """Create it. ``committed`` is None without a group; ``wake`` is called when a lookup has ended."""
        self._config = config
        self._partitions = partitions
        self._cluster = runtime.cluster
        self._tasks = runtime.tasks
        self._backoff = runtime.backoff
        self._wall_clock = runtime.wall_clock
        self._committed = committed
        self._metadata = metadata
        self._wake = wake
        self._failure: ClientError | None = None
        self._failures = 0
        """Failures in a row, which determine the pause before the next lookup."""

    def raise_failure(self) -> None:
        """Raise, once, what the application must know."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def look_up(self) -> None:
        """Begin every lookup that can be begun now."""
        now = asyncio.get_running_loop().time()
        initializing = self._partitions.in_phase(Phase.INITIALIZING, now)
        if initializing:
            self._begin(initializing, partial(self._look_up_committed, initializing), "committed offsets")
        resets = self._partitions.in_phase(Phase.AWAITING_RESET, now)
        for node_id, partitions in self._by_leader(resets, self._metadata.leader_of).items():
            policies = {tp: partition.reset_policy for tp, partition in partitions.items()}
            self._begin(partitions, partial(self._look_up_offsets, node_id, policies), "offsets to reset to")
        unvalidated = self._partitions.in_phase(Phase.AWAITING_VALIDATION, now)
        leaders = {tp: partition.position.leader for tp, partition in unvalidated.items()}
        for node_id, partitions in self._by_leader(unvalidated, leaders.__getitem__).items():
            positions = {tp: partition.position for tp, partition in partitions.items()}
            self._begin(partitions, partial(self._validate, node_id, positions), "ends of leader epochs")

    def _by_leader(
        self, partitions: Mapping[TopicPartition, AssignedPartition], leader_of: Callable[[TopicPartition], Leader]
    ) -> dict[int, dict[TopicPartition, AssignedPartition]]:
        by_leader: dict[int, dict[TopicPartition, AssignedPartition]] = {}
        for topic_partition, partition in partitions.items():
            node_id = leader_of(topic_partition).node_id
            if node_id in self._cluster.brokers:
                by_leader.setdefault(node_id, {})[topic_partition] = partition
            else:
                partition.retry_at = AFTER_METADATA
                self._metadata.refresh.request()
        return by_leader

    def _begin(self, partitions: Collection[TopicPartition], lookup: Callable[[], Awaitable[None]], name: str) -> None:
        """Begin a lookup, which is not repeated before the timeout of its request."""
        now = asyncio.get_running_loop().time()
        self._partitions.retry_later(partitions, now + self._config.request_timeout_ms / 1000)
        self._tasks.spawn(self._guard(partitions, lookup), name)

    async def _guard(self, partitions: Collection[TopicPartition], lookup: Callable[[], Awaitable[None]]) -> None:
        """Do a lookup. Keep its error for the next poll, and wake that."""
        has_succeeded = False
        try:
            await lookup()
            has_succeeded = True
        except ClientError as error:
            if not error.is_retriable:
                self._failure = error
        finally:
            if not has_succeeded:
                self._retry_later(partitions)
            self._wake()

    def _retry_later(self, partitions: Collection[TopicPartition]) -> None:
        """Retry the lookup of these later, with new metadata: there may be new leaders."""
        now = asyncio.get_running_loop().time()
        self._partitions.retry_later(partitions, now + self._backoff.pause_seconds(self._failures))
        self._failures += 1
        self._metadata.refresh.request()

    # What is committed

    async def _look_up_committed(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        committed = {} if self._committed is None else await self._committed(partitions)
        still = {
            tp: p for tp, p in partitions.items() if self._partitions.get(tp) is p and p.phase is Phase.INITIALIZING
        }
        for topic_partition, partition in still.items():
            offset = committed.get(topic_partition)
            if offset is not None:
                leader = self._metadata.leader_of(topic_partition)
                partition.seek(FetchPosition(offset.offset, offset.leader_epoch, leader))
        self._failures = 0
        self._partitions.reset_initializing(still.keys() - committed.keys())

    # Offsets by time

    async def _look_up_offsets(self, node_id: int, policies: Mapping[TopicPartition, ResetPolicy]) -> None:
        """Find the offsets that reset policies mean; ``policies`` is as of now: a seek may change it meanwhile."""
        requested = by_topic((tp, self._by_time(tp, policy)) for tp, policy in policies.items())
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=_READ_COMMITTED if self._config.reads_committed else _READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=name, partitions=of_topic) for name, of_topic in requested.items()],
        )
        seconds = self._config.request_timeout_ms / 1000
        responses = await send_to_each(self._cluster, {node_id: request}, ListOffsetsResponse, seconds)
        errors = dict.fromkeys(policies, ErrorCode.UNKNOWN_SERVER_ERROR)
        for topic_partition, error, offset in _offsets(responses[node_id], policies):
            if error is ErrorCode.NONE and offset == NO_OFFSET:  # No record is as young as that yet.
                error = ErrorCode.OFFSET_NOT_AVAILABLE
            errors[topic_partition] = error
            if error is ErrorCode.NONE:
                position = FetchPosition(offset, leader=self._metadata.leader_of(topic_partition))
                self._partitions.complete_reset(topic_partition, policies[topic_partition], position)
        self._settle(errors)

    def _by_time(self, topic_partition: TopicPartition, policy: ResetPolicy) -> ListOffsetsPartition:
        assert policy.timestamp is not None, "a partition waits for a reset without a policy"
        return ListOffsetsPartition(
            partition_index=topic_partition.partition,
            current_leader_epoch=self._metadata.leader_of(topic_partition).epoch,
            timestamp=self._wall_clock() - policy.timestamp if policy.is_age else policy.timestamp,
        )

    # Ends of epochs

    async def _validate(self, node_id: int, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        requested = by_topic((tp, _end_of_epoch(tp, position)) for tp, position in positions.items())
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=of_topic) for name, of_topic in requested.items()],
            replica_id=_CONSUMER,
        )
        seconds = self._config.request_timeout_ms / 1000
        responses = await send_to_each(self._cluster, {node_id: request}, OffsetForLeaderEpochResponse, seconds)
        response = responses[node_id]
        if isinstance(response, Refusal) and response.error is ErrorCode.UNSUPPORTED_VERSION:
            # A broker before Kafka 2.3 cannot validate a position: trust it.
            for topic_partition, position in positions.items():
                self._partitions.complete_validation(topic_partition, position, 0, position.offset)
            return
        errors = dict.fromkeys(positions, ErrorCode.UNKNOWN_SERVER_ERROR)
        truncated: list[ClientError] = []
        for topic_partition, error, end_epoch, end_offset in _ends(response, positions):
            errors[topic_partition] = error
            if error is ErrorCode.NONE:
                try:
                    position = positions[topic_partition]
                    self._partitions.complete_validation(topic_partition, position, end_epoch, end_offset)
                except ClientError as truncation:
                    truncated.append(truncation)
        self._settle(errors)
        if truncated:
            raise truncated[0]

    def _settle(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Retry what failed. Raises ``BrokerRefused`` for an error that a retry cannot mend."""
        failed = {topic_partition: error for topic_partition, error in errors.items() if error is not ErrorCode.NONE}
        if failed:
            self._retry_later(failed.keys())
        else:
            self._failures = 0
        for topic_partition, error in failed.items():
            if error not in RETRIABLE and error is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise BrokerRefused(str(topic_partition), Refusal(error=error))


def _end_of_epoch(topic_partition: TopicPartition, position: FetchPosition) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(
        partition=topic_partition.partition,
        current_leader_epoch=position.leader.epoch,
        leader_epoch=position.offset_epoch,
    )


def _offsets(
    response: ListOffsetsResponse | Refusal, partitions: Iterable[TopicPartition]
) -> Iterable[tuple[TopicPartition, ErrorCode, int]]:
    if isinstance(response, Refusal):
        yield from ((topic_partition, response.error, NO_OFFSET) for topic_partition in partitions)
        return
    for topic in response.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            yield topic_partition, error_code(partition.error_code), partition.offset


def _ends(
    response: OffsetForLeaderEpochResponse | Refusal, partitions: Iterable[TopicPartition]
) -> Iterable[tuple[TopicPartition, ErrorCode, int, int]]:
    if isinstance(response, Refusal):
        yield from ((topic_partition, response.error, NO_OFFSET, NO_OFFSET) for topic_partition in partitions)
        return
    for topic in response.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.topic, partition.partition)
            yield topic_partition, error_code(partition.error_code), partition.leader_epoch, partition.end_offset
