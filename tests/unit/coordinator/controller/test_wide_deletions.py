"""The deletion of thousands of partitions is divided over turns of the loop, and that of thousands of topics is written
in few calls."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Delete, MultiResult, Operation, Session, Znode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.turns import longest_turn
from tests.unit.coordinator.controller.cluster import running_cluster

PARTITIONS = 4_000
MOST_LINES = 45_000
"""Of one turn. At once it would be 64,000, and the sorting of all replicas."""


async def test_replicas_of_a_wide_topic_are_deleted_in_portions() -> None:
    async with running_cluster(1) as cluster:
        topic = NewTopic(name="wide", partition_count=PARTITIONS, replication_factor=1)
        await cluster.apis.create_topics([topic])
        await cluster.settle()
        active = cluster.active
        active.context.state.topics_to_delete["wide"] = None
        _, lines = await longest_turn(lambda: active.deletions.resume(["wide"]))
        assert lines < MOST_LINES


class CountedSession:
    """A session that counts the calls which wait for the store: on ZooKeeper each is a round trip and a disk's sync."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.calls = 0
        self.deletions: list[list[str]] = []
        """The paths of each batch."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        self.calls += 1
        return await self._session.get_many(paths)

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        self.calls += 1
        self.deletions += [[each.path for each in batch if isinstance(each, Delete)] for batch in batches]
        return await self._session.multi_many(batches)


async def deleted(topics: Sequence[str], partition_count: int) -> CountedSession:
    """Create topics and delete them. Returns the session of the deletion."""
    async with running_cluster(1) as cluster:
        wanted = [NewTopic(name=name, partition_count=partition_count, replication_factor=1) for name in topics]
        await cluster.apis.create_topics(wanted)
        await cluster.settle()
        active = cluster.active
        session = CountedSession(active.context.session)
        active.context._session = session
        await cluster.apis.delete_topics(topics, timeout_seconds=60)
        assert not active.context.state.topics.keys() & set(topics)
        for path in (*map(paths.topic, topics), *map(paths.topic_config, topics), *map(paths.delete_topic, topics)):
            assert await session.get(path) is None
        return session


async def test_znodes_of_many_topics_are_removed_in_few_calls() -> None:
    session = await deleted([f"t{number}" for number in range(300)], 1)
    # Brokers delete ten at a time; what is deleted meanwhile is removed together. One by one it would be 1,200.
    assert session.calls < 200


@pytest.mark.parametrize(("topic_count", "partition_count"), [(150, 1), (150, 3), (3, 500)])
async def test_intention_is_removed_with_the_last_znodes_of_its_topic(topic_count: int, partition_count: int) -> None:
    """A controller that ends between two batches leaves no part of a topic behind whose deletion is forgotten."""
    topics = [f"t{number}" for number in range(topic_count)]
    session = await deleted(topics, partition_count)
    before = set[str]()
    for batch in session.deletions:
        for topic in topics:
            if paths.delete_topic(topic) in batch:
                partitions = {paths.partition(TopicPartition(topic, index)) for index in range(partition_count)}
                assert partitions <= before
                assert {paths.partitions(topic), paths.topic_config(topic), paths.topic(topic)} <= {*batch}
        before.update(batch)
