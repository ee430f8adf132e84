"""The state topic of a real cluster: its partitions, and the record of each sink.

It is created if it is missing. A process keeps its position in each partition, and reads on from there.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, error_code
from oncelog.clients.retry import Backoff, Retry
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.retry import retry_operation
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_errors import SinkUnavailable, UnreadableState
from oncelog.spark_connector.sink.commit.state_record import StateRecord, decode_state
from oncelog.spark_connector.sink.state_topic import (
    STATE_TOPIC_CONFIGS,
    RecordOpen,
    StatePartition,
    StateTopicReader,
    newest_values,
    require_compaction,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

STATE_PARTITIONS: Final = 16
_FORBIDDEN: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


@dataclass(slots=True)
class StateMemory:
    """What one process remembers of the state topics of a cluster."""

    homes: dict[tuple[str, str], TopicPartition] = field(default_factory=dict)
    """By state topic and sink: the partition in which the driver has found its record, or will write the first one."""
    readers: dict[tuple[str, TopicPartition, bool], StateTopicReader] = field(default_factory=dict)
    """By sink, partition, and whether they read for tasks: these do not need records before their prelude."""
    compacted: set[str] = field(default_factory=set)
    """State topics whose cleanup policy was checked."""


class StateLog:
    """One state topic."""

    def __init__(self, cluster: Cluster, topic: str, patience_seconds: float, memory: StateMemory) -> None:
        self._cluster = cluster
        self._topic = topic
        self._patience_seconds = patience_seconds
        self._memory = memory

    def known_home(self, sink: str) -> TopicPartition | None:
        return self._memory.homes.get((self._topic, sink))

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        self._memory.homes[self._topic, sink] = home

    def position(self, sink: str, home: TopicPartition) -> int:
        reader = self._memory.readers.get((sink, home, False))
        return 0 if reader is None else reader.position

    async def partitions(self) -> list[TopicPartition]:
        """Return the partitions by fresh metadata; create the topic if it is missing."""
        try:
            partitions = await self._with_retries(self._partitions)
            if self._topic not in self._memory.compacted:
                await self._require_compaction()
                self._memory.compacted.add(self._topic)
        except ClientError as error:
            raise SinkUnavailable(f"the state topic {self._topic} cannot be used: {error}") from error
        return partitions

    async def _partitions(self) -> list[TopicPartition]:
        name = self._topic
        self._cluster.metadata.forget(name)
        topic = (await self._cluster.topics([name]))[name]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            topic = (await self._cluster.topics([name], create=True))[name]
        if topic.error_code:
            raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
        return sorted(TopicPartition(name, each.partition_index) for each in topic.partitions)

    async def _create(self) -> None:
        """Create the topic with as many replicas as the transaction state topic, which it depends on."""
        model = (await self._cluster.topics([TRANSACTION_STATE_TOPIC_NAME]))[TRANSACTION_STATE_TOPIC_NAME]
        if error_code(model.error_code) in _FORBIDDEN:
            _log.warning(
                "the replicas of %s cannot be seen: the state topic %s is made with the brokers' default number",
                TRANSACTION_STATE_TOPIC_NAME,
                self._topic,
            )
        replicas = max((len(each.replica_nodes) for each in model.partitions), default=-1)
        topic = NewTopic(
            name=self._topic,
            partitions=STATE_PARTITIONS,
            replication_factor=replicas,
            configs={**STATE_TOPIC_CONFIGS, "min.insync.replicas": "2" if replicas > 2 else "1"},
        )
        refused = (await create_topics(self._cluster, [topic]))[self._topic]
        if refused is not None and refused.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise BrokerRefused(f"topic {self._topic}", refused)

    async def _require_compaction(self) -> None:
        try:
            await require_compaction(self._cluster, self._topic)
        except BrokerRefused as error:
            if error.refusal.error not in _FORBIDDEN:
                raise
            _log.warning("the cleanup policy of the state topic cannot be read: %s", error)

    async def read(self, sink: str, home: TopicPartition, since: int | None) -> StateRecord | None:
        """Return the newest committed record of a sink in one partition; None if there is none.

        It is read again while the sink's own record is open: a broker may respond to EndTxn before it writes the
        marker.
        """
        reader = self._reader(sink, home, since)
        retry = Retry(Backoff(rng=self._cluster.rng), self._patience_seconds)
        try:
            while True:
                try:
                    value = await self._with_retries(reader.newest)
                    return None if value is None else decode_state(sink, value)
                except RecordOpen:
                    if not await retry.pause():
                        raise
        except ClientError as error:
            raise SinkUnavailable(f"the state of sink {sink} cannot be read: {error}") from error

    def _reader(self, sink: str, home: TopicPartition, since: int | None) -> StateTopicReader:
        key = (sink, home, since is not None)
        reader = self._memory.readers.get(key)
        if reader is None:
            partition = StatePartition(self._cluster, home)
            reader = self._memory.readers[key] = StateTopicReader(partition, sink.encode(), since)
        reader.skip_to(since or 0)
        return reader

    async def find_sinks(self, former: FormerNames) -> list[str]:
        """Return the sinks whose newest record, committed or not, ``former`` includes."""
        try:
            values = await self._with_retries(self._newest_values)
        except ClientError as error:
            raise SinkUnavailable(f"the state topic {self._topic} cannot be read: {error}") from error
        found = []
        for key, value in values:
            try:
                sink = key.decode()
                state = decode_state(sink, value)
            except (UnicodeDecodeError, UnreadableState) as error:
                _log.warning("skipped a record of the state topic: %s", error)
                continue
            if former.includes(state):
                found.append(sink)
        return list(dict.fromkeys(found))

    async def _newest_values(self) -> list[tuple[bytes, bytes]]:
        """Return the last value of each key in each partition."""
        values: list[tuple[bytes, bytes]] = []
        for home in await self._partitions():
            values += (await newest_values(StatePartition(self._cluster, home))).items()
        return values

    async def _with_retries(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await retry_operation(self._cluster, self._patience_seconds, operation)
