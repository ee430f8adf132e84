"""Who is asked about which configuration."""

from oncelog.clients.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    Operation,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
    replace_configs,
)
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages import alter_configs as legacy
from oncelog.protocol.messages import incremental_alter_configs as incremental
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

ORDERS = Resource(type=ResourceType.TOPIC, name="orders")
BROKER_2 = Resource(type=ResourceType.BROKER, name="2")
ALL_BROKERS = Resource(type=ResourceType.BROKER, name="")


def described(request: Message) -> DescribeConfigsResponse:
    assert isinstance(request, DescribeConfigsRequest)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[DescribeConfigsResourceResult(name="b"), DescribeConfigsResourceResult(name="a", value="1")],
            )
            for each in request.resources
        ]
    )


def altered(request: Message) -> incremental.IncrementalAlterConfigsResponse:
    assert isinstance(request, incremental.IncrementalAlterConfigsRequest)
    return incremental.IncrementalAlterConfigsResponse(
        responses=[
            incremental.AlterConfigsResourceResponse(resource_type=each.resource_type, resource_name=each.resource_name)
            for each in request.resources
        ]
    )


def replaced(request: Message) -> legacy.AlterConfigsResponse:
    assert isinstance(request, legacy.AlterConfigsRequest)
    return legacy.AlterConfigsResponse(
        responses=[
            legacy.AlterConfigsResourceResponse(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=ErrorCode.INVALID_CONFIG if each.resource_name == "2" else 0,
                error_message="no",
            )
            for each in request.resources
        ]
    )


def brokers() -> list[ScriptedBroker]:
    script = {
        DescribeConfigsRequest: described,
        incremental.IncrementalAlterConfigsRequest: altered,
        legacy.AlterConfigsRequest: replaced,
    }
    return [ScriptedBroker(dict(script), node_id=node_id) for node_id in (1, 2)]


def requested(broker: ScriptedBroker, cls: type[Message]) -> list[list[str]]:
    return [[each.resource_name for each in request.resources] for request in broker.seen(cls)]  # type: ignore[attr-defined]


@in_virtual_time
async def test_describe_configs_of_a_broker_goes_to_it_and_others_to_any_broker() -> None:
    one, two = brokers()
    async with cluster_of(one, two) as cluster:
        found = await describe_configs(cluster, {ORDERS: ["a"], BROKER_2: None, ALL_BROKERS: None})
        assert set(found) == {ORDERS, BROKER_2, ALL_BROKERS}
        assert requested(two, DescribeConfigsRequest) == [["2"]]
        assert requested(one, DescribeConfigsRequest) == [["orders", ""]]
        entries = found[ORDERS]
        assert not isinstance(entries, Refusal)
        assert entries[0] == ConfigEntry(
            name="a", value="1", source=ConfigSource.UNKNOWN, is_read_only=False, documentation=None
        )
        (request,) = one.seen(DescribeConfigsRequest)
        assert isinstance(request, DescribeConfigsRequest)
        assert [each.configuration_keys for each in request.resources] == [["a"], None]


@in_virtual_time
async def test_alter_configs_of_a_broker_goes_to_it_and_others_to_the_controller() -> None:
    one, two = brokers()
    async with cluster_of(one, two) as cluster:
        change = [ConfigChange(name="a", operation=Operation.SET, value="1")]
        outcomes = await alter_configs(cluster, {ORDERS: change, BROKER_2: change, ALL_BROKERS: change})
        assert outcomes == dict.fromkeys((ORDERS, BROKER_2, ALL_BROKERS))
        assert requested(two, incremental.IncrementalAlterConfigsRequest) == [["2"]]
        assert requested(one, incremental.IncrementalAlterConfigsRequest) == [["orders", ""]]


@in_virtual_time
async def test_replace_configs_of_a_broker_goes_to_it_and_others_to_the_controller() -> None:
    one, two = brokers()
    async with cluster_of(one, two) as cluster:
        outcomes = await replace_configs(cluster, {ORDERS: {"a": "1"}, BROKER_2: {}}, validate_only=True)
        assert outcomes == {ORDERS: None, BROKER_2: Refusal(error=ErrorCode.INVALID_CONFIG, message="no")}
        (request,) = one.seen(legacy.AlterConfigsRequest)
        assert isinstance(request, legacy.AlterConfigsRequest)
        assert request.validate_only
        assert [(each.name, each.value) for each in request.resources[0].configs] == [("a", "1")]
