"""How users say where to begin, and which offsets they mean."""

from collections.abc import Mapping
from random import Random

import pytest

from oncelog.clients.admin.offsets import EARLIEST, LATEST
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer.positions import BEGINNING, END, Position, PositionKind, parse_position, resolve_position
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata, requested_only

READ_COMMITTED = 1


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", BEGINNING),
        ("start", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("latest", END),
        ("0", Position(PositionKind.OFFSET, 0)),
        ("42", Position(PositionKind.OFFSET, 42)),
        ("-10", Position(PositionKind.BEFORE_END, 10)),
        ("@1718000000000", Position(PositionKind.TIMESTAMP, 1718000000000)),
        ("@2024-06-10T08:00:00+00:00", Position(PositionKind.TIMESTAMP, 1718006400000)),
        ("@2024-06-10T10:00:00.250+02:00", Position(PositionKind.TIMESTAMP, 1718006400250)),
    ],
)
def test_positions_that_are_understood(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "middle", "1.5", "@", "@soon", "@-1", "--1"])
def test_positions_that_are_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|is neither"):
        parse_position(text)


class OnePartition:
    """Offsets 5 to 20, the last stable one 15; a record of time t has offset t / 100."""

    def __init__(self) -> None:
        self.errors: dict[int, ErrorCode] = {}

    def __call__(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._respond(partition, request.isolation_level) for partition in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _respond(self, requested: ListOffsetsPartition, isolation: int) -> ListOffsetsPartitionResponse:
        end = 15 if isolation == READ_COMMITTED else 20
        ends: Mapping[int, int] = {EARLIEST: 5, LATEST: end}
        by_time = requested.timestamp // 100
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=self.errors.get(requested.partition_index, ErrorCode.NONE),
            offset=ends.get(requested.timestamp, by_time if by_time < end else -1),
        )


ORDERS = TopicPartition("orders", 0)


async def resolve(text: str, *, read_committed: bool = False, script: OnePartition | None = None) -> int:
    broker = ScriptedBroker({ListOffsetsRequest: script or OnePartition()})
    address = await broker.start()
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))
    async with Cluster([address], rng=Random(1)) as cluster:
        position = parse_position(text)
        offsets = await resolve_position(cluster, [ORDERS], position, read_committed=read_committed)
    broker.stop()
    return offsets[ORDERS]


@in_virtual_time
async def test_position_text_resolves_to_its_offset() -> None:
    assert await resolve("beginning") == 5
    assert await resolve("end") == 20
    assert await resolve("7") == 7
    assert await resolve("-3") == 17
    assert await resolve("-100") == 5, "not before the beginning"
    assert await resolve("@1000") == 10
    assert await resolve("@9000") == 20, "no record is as young: the end"


@in_virtual_time
async def test_end_for_read_committed_is_the_last_stable_offset() -> None:
    assert await resolve("end", read_committed=True) == 15
    assert await resolve("-3", read_committed=True) == 12
    assert await resolve("@1600", read_committed=True) == 15


@in_virtual_time
async def test_partition_with_an_error_raises() -> None:
    script = OnePartition()
    script.errors[0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerRefused, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
        await resolve("end", script=script)
