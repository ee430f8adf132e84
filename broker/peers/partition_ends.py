"""Where partitions end that other brokers lead: for the lag of consumer groups, whose coordinator may have no replica.

The leaders receive OffsetForLeaderEpoch, which brokers may send each other. What is not known in time is absent:
a lag that is not known is not shown. The log end is a little ahead of the high watermark, by what is being replicated.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

from oncelog.coordinator.controller.cluster_image import NO_LEADER, MetadataCache
from oncelog.coordinator.ports import BrokerChannel
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

_PARTITIONS_AT_ONCE: Final = 1_000
"""In one request. Each is two array elements at most, and a broker that is set to the least accepts 7,000."""
_SECONDS: Final = 1.0
"""How long a page waits for the leaders."""


class PartitionEnds:
    """Requests the ends of partitions from their leaders."""

    def __init__(self, channel: BrokerChannel, metadata: MetadataCache) -> None:
        self._channel = channel
        self._metadata = metadata

    async def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends that the leaders respond with in time."""
        ends: dict[TopicPartition, int] = {}
        pending: list[asyncio.Future[None]] = []
        for leader, request in self._requests(partitions):
            done = asyncio.get_running_loop().create_future()
            pending.append(done)

            def on_response(response: Message | None, done: asyncio.Future[None] = done) -> None:
                if not done.done():
                    ends.update(_ends_in(response))
                    done.set_result(None)

            self._channel.send(leader, request, on_response)
            await asyncio.sleep(0)
        if pending:
            _, late = await asyncio.wait(pending, timeout=_SECONDS)
            for done in late:
                done.cancel()
        return ends

    def _requests(self, partitions: Collection[TopicPartition]) -> Iterator[tuple[int, OffsetForLeaderEpochRequest]]:
        """Yield requests, each with its leader; a request leaves when it is full, or with the others at the end."""
        image = self._metadata.image
        by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
        for topic_partition in partitions:
            known = image.partition(topic_partition)
            if known is None or known.leader <= NO_LEADER:
                continue
            of_leader = by_leader.setdefault(known.leader, [])
            of_leader.append((topic_partition, known.leader_epoch))
            if len(of_leader) == _PARTITIONS_AT_ONCE:
                yield known.leader, _request(by_leader.pop(known.leader))
        for leader, of_leader in by_leader.items():
            yield leader, _request(of_leader)


def _request(wanted: list[tuple[TopicPartition, int]]) -> OffsetForLeaderEpochRequest:
    """Return the request for partitions, each with its leader epoch."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, index), leader_epoch in wanted:
        of_topic = topics.setdefault(topic, OffsetForLeaderTopic(topic=topic))
        of_topic.partitions.append(OffsetForLeaderPartition(partition=index, leader_epoch=leader_epoch))
    return OffsetForLeaderEpochRequest(topics=list(topics.values()))


def _ends_in(response: Message | None) -> dict[TopicPartition, int]:
    if not isinstance(response, OffsetForLeaderEpochResponse):
        return {}
    return {
        TopicPartition(topic.topic, each.partition): each.end_offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.end_offset >= 0
    }
