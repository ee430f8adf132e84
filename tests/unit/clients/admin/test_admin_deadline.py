"""One deadline for a call of an administrator, however many requests it consists of. In virtual time."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import ClientError
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog.protocol.messages.create_topics import CreateTopicsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import coordinated_by
from tests.unit.clients.scripted_broker import (
    Reaction,
    Script,
    ScriptedBroker,
    ScriptedResponse,
    metadata,
    requested_only,
)

SECONDS = 10.0
SLOW_SECONDS = 7.0
"""Of the requests that find out whom to ask; two of them are more than a call has."""
ORDERS = TopicPartition("orders", 0)
BROKER = Resource(type=ResourceType.BROKER, name="1")
CHANGE = ConfigChange(name="retention.ms", operation=Operation.SET, value="1")

CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "create_topics": lambda admin: admin.create_topics([NewTopic(name="new", partitions=1)]),
    "create_partitions": lambda admin: admin.create_partitions({"orders": 2}),
    "delete_topics": lambda admin: admin.delete_topics(["orders"]),
    "delete_records": lambda admin: admin.delete_records({ORDERS: 1}),
    "list_offsets": lambda admin: admin.list_offsets({ORDERS: -1}),
    "describe_configs": lambda admin: admin.describe_configs({BROKER: None}),
    "alter_configs": lambda admin: admin.alter_configs({BROKER: [CHANGE]}),
    "describe_groups": lambda admin: admin.describe_groups(["billing"]),
    "list_groups": lambda admin: admin.list_groups(),
}


class SlowBroker(ScriptedBroker):
    """Tells of the cluster late, and answers nothing else."""

    def __init__(self) -> None:
        changing: list[type[Message]] = [
            CreateTopicsRequest,
            CreatePartitionsRequest,
            DeleteTopicsRequest,
            DeleteRecordsRequest,
            ListOffsetsRequest,
            DescribeConfigsRequest,
            IncrementalAlterConfigsRequest,
            DescribeGroupsRequest,
            ListGroupsRequest,
        ]
        super().__init__(dict.fromkeys(changing, Reaction.SILENCE))
        self.script |= {
            MetadataRequest: self._late(lambda request: requested_only(self._reported())(request)),
            FindCoordinatorRequest: self._late(lambda request: coordinated_by(self)(request)),
        }

    def _reported(self) -> Any:
        return metadata({1: self.address}, {"orders": [1]})

    def _late(self, script: Script) -> Script:
        def hold(request: Message) -> ScriptedResponse:
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self.release, script)
            return Reaction.HOLD

        return hold


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_of_several_slow_requests_ends_within_one_operation_time(call: Callable[[Admin], Awaitable[Any]]) -> None:
    @in_virtual_time
    async def play() -> None:
        loop = asyncio.get_running_loop()
        broker = SlowBroker()
        address = await broker.start()
        async with Admin(str(address), rng=Random(1), default_api_timeout_ms=int(SECONDS * 1000)) as admin:
            began = loop.time()
            outcome: object
            try:
                outcome = await call(admin)
            except ClientError as error:
                outcome = error
            assert SLOW_SECONDS < loop.time() - began <= SECONDS + 0.5, outcome
        broker.stop()

    play()


@in_virtual_time
async def test_time_for_a_connection_is_a_part_of_the_call() -> None:
    """A broker that accepts connections and says nothing costs the call's time, not that of an attempt to connect."""
    loop = asyncio.get_running_loop()
    broker = ScriptedBroker({})
    broker.api_versions = Reaction.SILENCE
    address = await broker.start()
    async with Admin(
        str(address), rng=Random(1), connect_timeout_ms=60_000, default_api_timeout_ms=int(SECONDS * 1000)
    ) as admin:
        began = loop.time()
        with pytest.raises(ClientError, match=str(address)):
            await admin.list_topics()
        assert loop.time() - began <= SECONDS + 0.5
    broker.stop()


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, "30", None], ids=str)
@pytest.mark.parametrize("name", ["operation_seconds", "connect_seconds"])
@in_virtual_time
async def test_time_that_is_not_positive_and_finite_is_refused_with_its_name(name: str, seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        Cluster([Address("localhost", 9092)], rng=Random(1), **{name: seconds})


@pytest.mark.parametrize("milliseconds", [math.nan, math.inf, -1, 0, "30", None], ids=str)
@pytest.mark.parametrize("name", ["default_api_timeout_ms", "connect_timeout_ms"])
def test_setting_that_is_no_positive_finite_time_is_refused_with_its_name(name: str, milliseconds: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        Admin("localhost:9092", rng=Random(1), **{name: milliseconds})
