"""Plans of many partitions are made in portions between which the loop runs."""

import asyncio
from collections.abc import Iterator

from oncelog.coordinator.controller.topic_changes import collect
from oncelog.coordinator.controller.topic_plan import TopicPlan
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment, TopicAssignment


async def test_collect_of_few_topics_with_many_partitions_leaves_the_loop_a_turn_after_each() -> None:
    loop = asyncio.get_running_loop()
    turns = [0]
    seen: list[int] = []

    def count() -> None:
        turns[0] += 1
        if turns[0] < 100:
            loop.call_soon(count)

    def plans() -> Iterator[TopicPlan]:
        partitions = {number: ReplicaAssignment(replicas=(1,)) for number in range(2_000)}
        for number in range(5):
            seen.append(turns[0])
            assignment = TopicAssignment(topic_id=bytes(16), partitions=partitions)
            yield TopicPlan(name=f"topic-{number}", assignment=assignment, configs={})

    count()
    assert len(await collect(plans())) == 5
    assert sorted(set(seen)) == seen, "two topics were planned in one turn of the loop"
