"""Settings of groups and client metrics subscriptions: described, altered, listed, kept. The codes are Kafka 4.3's."""

import pytest

from oncelog.broker.handlers.list_config_resources import handle_list_config_resources
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.config_changes import ConfigResource, OperationType, ResourceType, resource_at
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.unit.broker.handlers.administration import Denies, after_power_loss, ask, new_disk, running_broker
from tests.unit.broker.handlers.test_config_administration import chain, change, create, describe, described

GROUP, METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = OperationType
DEFAULT, CLIENT_METRICS_CONFIG, GROUP_CONFIG = 5, 7, 8
SESSION = "consumer.session.timeout.ms"


async def test_describe_group_shows_kafkas_settings_and_their_defaults() -> None:
    async with running_broker() as broker:
        result = await describe(broker, GROUP, "any group")
        assert (result.error_code, len(result.configs)) == (ErrorCode.NONE, 17)
        session = await described(broker, GROUP, "any group", SESSION)
        assert (session.value, session.config_source, session.read_only) == ("45000", DEFAULT, False)
        assert chain(session) == [(f"group.{SESSION}", "45000", DEFAULT)]
        assert "no effect" in (session.documentation or "")


async def test_describe_client_metrics_shows_kafkas_settings_and_their_defaults() -> None:
    async with running_broker() as broker:
        result = await describe(broker, METRICS, "sub")
        shown = {config.name: (config.value, config.config_source) for config in result.configs}
        assert shown == {"interval.ms": ("300000", DEFAULT), "match": ("", DEFAULT), "metrics": ("", DEFAULT)}


@pytest.mark.parametrize("name", ["g", "a/b", "..", "ü \n %41", "x" * 1000])
async def test_altered_settings_of_a_group_are_described_and_kept(name: str) -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        assert await change(broker, GROUP, name, (SESSION, SET, "50000")) is ErrorCode.NONE
        assert await change(broker, METRICS, name, ("interval.ms", SET, "500")) is ErrorCode.NONE
        assert await change(broker, METRICS, name, ("metrics", APPEND, "a,b")) is ErrorCode.NONE
        survivor = after_power_loss(disk)
    async with running_broker(survivor) as broker:
        session = await described(broker, GROUP, name, SESSION)
        assert (session.value, session.config_source) == ("50000", GROUP_CONFIG)
        assert chain(session) == [(SESSION, "50000", GROUP_CONFIG), (f"group.{SESSION}", "45000", DEFAULT)]
        metrics = await described(broker, METRICS, name, "metrics")
        assert (metrics.value, metrics.config_source) == ("a,b", CLIENT_METRICS_CONFIG)
        assert await listed(broker, 1, GROUP, METRICS) == [(METRICS, name), (GROUP, name)]
        assert await change(broker, GROUP, name, (SESSION, DELETE, None)) is ErrorCode.NONE
        assert (await described(broker, GROUP, name, SESSION)).value == "45000"
        assert await listed(broker, 1, GROUP) == []


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "value", "error"),
    [
        (GROUP, "g", SESSION, "44999", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", SESSION, "60001", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", SESSION, "soon", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "share.auto.offset.reset", "none", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:-PT1H", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "share.isolation.level", "x", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "no.such", "1", ErrorCode.INVALID_CONFIG),
        (GROUP, "", SESSION, "50000", ErrorCode.INVALID_REQUEST),
        (METRICS, "s", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        (METRICS, "s", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        (METRICS, "s", "match", "a=b", ErrorCode.INVALID_CONFIG),
        (METRICS, "s", "match", "client_id=[", ErrorCode.INVALID_CONFIG),
        (METRICS, "s", "no.such", "1", ErrorCode.INVALID_REQUEST),
        (METRICS, "", "interval.ms", "500", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_alter_group_or_metrics_with_a_wrong_value_is_refused(
    resource_type: ResourceType, name: str, key: str, value: str, error: ErrorCode
) -> None:
    async with running_broker() as broker:
        assert await change(broker, resource_type, name, (key, SET, value)) is error
        assert broker.configs.overrides(ConfigResource(resource_type, name)) == {}


@pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"])
async def test_alter_share_auto_offset_reset_takes_kafkas_forms(value: str) -> None:
    async with running_broker() as broker:
        assert await change(broker, GROUP, "g", ("share.auto.offset.reset", SET, value)) is ErrorCode.NONE


async def test_alter_group_does_not_touch_the_logs_of_topics() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        configs = [log.config for log in broker.log_manager]
        assert await change(broker, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.NONE
        assert all(log.config is config for log, config in zip(broker.log_manager, configs, strict=True))


async def test_describe_group_of_an_unauthorized_client_is_refused() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS])
        assert (await describe(broker, GROUP, "g")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await describe(broker, METRICS, "s")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response = await ask(
            broker, handle_list_config_resources, ListConfigResourcesRequest(), ListConfigResourcesResponse
        )
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def listed(broker: Broker, version: int, *types: ResourceType) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = await ask(broker, handle_list_config_resources, request, ListConfigResourcesResponse, version)
    response = decode(ListConfigResourcesResponse, version, encode(response, version))
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


async def test_list_config_resources_in_both_versions() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        await change(broker, GROUP, "g", (SESSION, SET, "50000"))
        await change(broker, METRICS, "s", ("interval.ms", SET, "500"))
        assert await listed(broker, 0) == [(METRICS, "s")]
        assert await listed(broker, 1, GROUP) == [(GROUP, "g")]
        everything = [(ResourceType.TOPIC, "t"), (ResourceType.BROKER, "1"), (ResourceType.BROKER_LOGGER, "1")]
        assert await listed(broker, 1) == [*everything, (METRICS, "s"), (GROUP, "g")]
        request = ListConfigResourcesRequest(resource_types=[99])
        response = await ask(broker, handle_list_config_resources, request, ListConfigResourcesResponse)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("name", ["g", "a/b", ".", "..", "ü%2F", " "])
def test_resource_with_any_name_is_found_again_by_its_path(name: str) -> None:
    for resource_type in (GROUP, METRICS):
        resource = ConfigResource(resource_type, name)
        assert resource_at(resource.entity_path) == resource
        assert resource.entity_path.count("/") == 1
