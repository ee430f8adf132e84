"""Requests to the leaders of partitions: what is known of those that fail again and again."""

from random import Random

from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.cli.remedies import remedy
from oncelog.clients.cli.waiting import Notices
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata, requested_only

T0 = TopicPartition("t", 0)
UNAVAILABLE = ErrorCode.OFFSET_NOT_AVAILABLE
RESPONSE = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name="t", partitions=[ListOffsetsPartitionResponse(partition_index=0, error_code=UNAVAILABLE)]
        )
    ]
)


@in_virtual_time
async def test_offset_that_is_not_available_is_an_obstacle_with_a_remedy() -> None:
    broker = ScriptedBroker({ListOffsetsRequest: RESPONSE})
    address = await broker.start()
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"t": [1]}))
    async with Cluster([address], rng=Random(1), operation_seconds=4.0) as cluster:
        found = await list_offsets(cluster, {T0: LATEST})
        assert dict(found.failed) == {T0: UNAVAILABLE}
        (obstacle,) = cluster.obstacles()
        assert (obstacle.reason, obstacle.error) == ("t-0: OFFSET_NOT_AVAILABLE", UNAVAILABLE)
        advice = Notices(bootstrap=[address]).advise([obstacle])
    broker.stop()
    assert advice == remedy(Refusal(error=UNAVAILABLE))
    assert "fewer replicas have been in sync than min.insync.replicas" in advice
