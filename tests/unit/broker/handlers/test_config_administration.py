"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs on a whole broker."""

import pytest

from oncelog.broker.handlers.alter_configs import handle_alter_configs
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.describe_configs import handle_describe_configs
from oncelog.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.config_changes import OperationType, ResourceType
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages import alter_configs, incremental_alter_configs
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from oncelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.protocol.schema import SharedList
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import Denies, after_power_loss, ask, new_disk, running_broker, settle

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = range(1, 6)


async def create(broker: Broker, name: str) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    response = await ask(broker, handle_create_topics, request, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE


async def describe(broker: Broker, resource_type: int, name: str, *keys: str) -> DescribeConfigsResult:
    requested = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=list(keys))
    request = DescribeConfigsRequest(resources=[requested], include_synonyms=True, include_documentation=True)
    response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
    for version in handle_describe_configs.versions:
        decode(DescribeConfigsResponse, version, encode(response, version))
    return response.results[0]


async def described(broker: Broker, resource_type: int, name: str, key: str) -> DescribeConfigsResourceResult:
    result = await describe(broker, resource_type, name, key)
    assert result.error_code == ErrorCode.NONE
    assert [config.name for config in result.configs] == [key]
    return result.configs[0]


def chain(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


async def change(
    broker: Broker,
    resource_type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response = await ask(broker, handle_incremental_alter_configs, request, IncrementalAlterConfigsResponse)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return ErrorCode(result.error_code)


async def replace_all(broker: Broker, name: str, **configs: str | None) -> ErrorCode:
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    request = AlterConfigsRequest(resources=[resource])
    return ErrorCode((await ask(broker, handle_alter_configs, request, AlterConfigsResponse)).responses[0].error_code)


SET, DELETE, APPEND, SUBTRACT = OperationType


async def test_describe_topic_setting_shows_all_synonyms() -> None:
    async with running_broker(log_retention_hours="2") as broker:
        await create(broker, "t")
        config = await described(broker, TOPIC, "t", "retention.ms")
        assert (config.value, config.config_source) == ("7200000", DEFAULT)
        assert chain(config) == []
        assert await change(broker, BROKER, "", ("log.retention.ms", SET, "3000")) is ErrorCode.NONE
        assert await change(broker, BROKER, "1", ("log.retention.ms", SET, "2000")) is ErrorCode.NONE
        assert await change(broker, TOPIC, "t", ("retention.ms", SET, "1000")) is ErrorCode.NONE
        config = await described(broker, TOPIC, "t", "retention.ms")
        assert (config.value, config.config_source) == ("1000", TOPIC_CONFIG)
        assert chain(config) == [
            ("retention.ms", "1000", TOPIC_CONFIG),
            ("log.retention.ms", "2000", DYNAMIC_BROKER),
            ("log.retention.ms", "3000", DYNAMIC_DEFAULT),
        ]
        assert (config.config_type, config.read_only, config.is_sensitive) == (5, False, False)
        assert config.documentation
        assert await change(broker, TOPIC, "t", ("retention.ms", DELETE, None)) is ErrorCode.NONE
        config = await described(broker, TOPIC, "t", "retention.ms")
        assert (config.value, config.config_source) == ("2000", DYNAMIC_BROKER)


async def test_topic_settings_have_the_synonyms_that_kafka_4_3_shows() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        found = {each.name: chain(each) for each in (await describe(broker, TOPIC, "t")).configs}
        for key in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "remote.storage.enable"):
            assert found[key] == [], key
        assert found["segment.bytes"] == [("log.segment.bytes", "1073741824", DEFAULT)]
        assert found["max.message.bytes"] == [("message.max.bytes", "1048588", DEFAULT)]


async def test_describe_configs_without_keys_describes_all_settings() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        topic = await describe(broker, TOPIC, "t")
        assert {"cleanup.policy", "min.insync.replicas", "segment.bytes"} <= {each.name for each in topic.configs}
        own = await describe(broker, BROKER, "1")
        found = {each.name: each for each in own.configs}
        assert (found["listeners"].value, found["listeners"].config_source) == (
            "PLAINTEXT://localhost:0",
            STATIC_BROKER,
        )
        assert found["listeners"].read_only
        assert not found["log.retention.ms"].read_only
        assert (found["offsets.topic.replication.factor"].value, found["num.partitions"].value) == ("1", "1")
        assert found["num.partitions"].config_source == DEFAULT
        assert (await describe(broker, BROKER, "")).configs == []


@pytest.mark.parametrize("given", [{}, {"broker_id": "-1"}])
async def test_describe_broker_with_generated_id_shows_the_generated_id(given: dict[str, str]) -> None:
    async with running_broker(**given) as broker:
        assert broker.broker_id == 1
        config = await described(broker, BROKER, "1", "broker.id")
        assert (config.value, config.config_source, config.read_only) == ("1", STATIC_BROKER, True)
        assert chain(config) == [("broker.id", "1", STATIC_BROKER), ("broker.id", "-1", DEFAULT)]
        assert (await described(broker, BROKER, "1", "node.id")).value == "1"


async def test_resource_that_is_named_again_is_described_once() -> None:
    async with running_broker(new_disk()) as broker:
        names = ["", "unknown", "", "unknown"]
        resources = [DescribeConfigsResource(resource_type=BROKER, resource_name=name) for name in names]
        request = DescribeConfigsRequest(resources=resources)
        response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
        assert [result.resource_name for result in response.results] == ["", "unknown"]


async def test_topics_that_set_the_same_share_a_description_that_is_encoded_once() -> None:
    """The cost of a large request is that of what differs, not thirty-five descriptions for each topic."""
    async with running_broker() as broker:
        names = ["a", "b", "c"]
        for name in names:
            await create(broker, name)
        await change(broker, TOPIC, "b", ("retention.ms", SET, "5"))
        request = DescribeConfigsRequest(
            resources=[
                *(
                    DescribeConfigsResource(resource_type=TOPIC, resource_name=n, configuration_keys=None)
                    for n in names
                ),
                *(
                    DescribeConfigsResource(resource_type=ResourceType.GROUP, resource_name=n, configuration_keys=None)
                    for n in names
                ),
            ]
        )
        response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
        plain, other, same, group, *groups = (result.configs for result in response.results)
        assert plain is same
        assert all(each is group for each in groups)
        assert [mine.name for mine, inherited in zip(other, plain, strict=True) if mine is not inherited] == [
            "retention.ms"
        ]
        whole = encode(response, 4)
        assert isinstance(plain, SharedList)
        assert whole.count(plain.encodings[4]) == 2
        assert decode(DescribeConfigsResponse, 4, whole).results[2].configs == list(plain)


async def test_synonyms_and_documentation_come_on_request() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
            ]
        )
        response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
        (config,) = response.results[0].configs
        assert (config.synonyms, config.documentation) == ([], None)
        assert config.config_source == DEFAULT


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_describe_configs_of_resources_without_configuration_is_refused(
    resource_type: int, name: str, error: ErrorCode
) -> None:
    async with running_broker() as broker:
        result = await describe(broker, resource_type, name)
        assert (result.error_code, result.resource_type, result.resource_name) == (error, resource_type, name)
        assert result.error_message
        assert result.configs == []
        assert await change(broker, resource_type, name, ("retention.ms", SET, "1")) is error


async def test_altered_topic_setting_reaches_the_logs_and_survives_a_power_loss() -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        await create(broker, "t")
        log = broker.log_manager.get(TopicPartition("t", 0))
        assert log is not None
        assert await change(broker, TOPIC, "t", ("retention.ms", SET, "77")) is ErrorCode.NONE
        assert log.config.retention_ms == 77
        assert await change(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
        assert log.config.cleanup_policy == {"delete", "compact"}
        assert await change(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.NONE
        assert log.config.cleanup_policy == {"compact"}
        survivor = after_power_loss(disk)
    async with running_broker(survivor) as broker:
        await settle()  # It takes its leaderships after it has started.
        log = broker.log_manager.get(TopicPartition("t", 0))
        assert log is not None
        assert log.config.retention_ms == 77
        assert log.config.cleanup_policy == {"compact"}


async def test_brokers_default_changes_the_logs_of_all_topics() -> None:
    async with running_broker() as broker:
        await create(broker, "own")
        await create(broker, "default")
        await change(broker, TOPIC, "own", ("max.message.bytes", SET, "100"))
        logs = {name: broker.log_manager.get(TopicPartition(name, 0)) for name in ("own", "default")}
        assert await change(broker, BROKER, "", ("message.max.bytes", SET, "200")) is ErrorCode.NONE
        assert {name: log.config.max_message_bytes for name, log in logs.items() if log} == {
            "own": 100,
            "default": 200,
        }
        await create(broker, "later")
        later = broker.log_manager.get(TopicPartition("later", 0))
        assert later is not None
        assert later.config.max_message_bytes == 200


async def test_alter_configs_removes_overrides_that_it_does_not_name() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        assert await replace_all(broker, "t", retention_ms="1", segment_bytes="2000000") is ErrorCode.NONE
        assert await replace_all(broker, "t", retention_ms="2") is ErrorCode.NONE
        assert broker.configs.topic_overrides("t") == {"retention.ms": "2"}
        assert await replace_all(broker, "t", retention_ms=None) is ErrorCode.INVALID_REQUEST
        assert broker.configs.topic_overrides("t") == {"retention.ms": "2"}


@pytest.mark.parametrize(
    ("resource_type", "name", "operation", "error"),
    [
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("no.such.key", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refused_alterations_change_nothing(
    resource_type: int, name: str, operation: tuple[str, int, str | None], error: ErrorCode
) -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        good = ("segment.bytes", SET, "1000") if resource_type == TOPIC else ("log.segment.bytes", SET, "1000")
        assert await change(broker, resource_type, name, good, operation) is error
        assert broker.configs.topic_overrides("t") == broker.configs.cluster_overrides() == {}


async def test_alter_configs_with_validate_only_changes_nothing() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        checked = await change(broker, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True)
        assert checked is ErrorCode.NONE
        assert broker.configs.topic_overrides("t") == {}


async def test_config_requests_of_unauthorized_clients_are_refused() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        broker.authorizer = Denies([Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS])
        assert (await describe(broker, TOPIC, "t")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await describe(broker, BROKER, "1")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        one = ("retention.ms", SET, "1")
        assert await change(broker, TOPIC, "t", one) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await change(broker, BROKER, "1", one) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_alter_segment_bytes_below_kafkas_minimum_is_refused_and_an_older_value_stays() -> None:
    async with running_broker() as broker:
        tiny = [CreatableTopicConfig(name="segment.bytes", value="14")]
        topics = [CreatableTopic(name="tiny", num_partitions=1, replication_factor=1, configs=tiny)]
        created = await ask(broker, handle_create_topics, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert created.topics[0].error_message == (
            "segment.bytes=14 is not valid: expected at least 1048576, because each segment is a file"
        )
        await create(broker, "old")
        assert await alter_one(broker, TOPIC, "old", "segment.bytes", "1048575") == ErrorCode.INVALID_CONFIG
        assert await alter_one(broker, BROKER, "", "log.segment.bytes", "14") == ErrorCode.INVALID_REQUEST
        assert await alter_one(broker, TOPIC, "old", "segment.bytes", "1048576") == ErrorCode.NONE
        session = broker.controller._store.session
        assert session is not None
        await session.set(paths.topic_config("old"), znodes.encode_config({"segment.bytes": "5000"}))
        await broker.configs.load(session, lambda: None)
        assert await alter_one(broker, TOPIC, "old", "retention.ms", "1000") == ErrorCode.NONE
        assert broker.configs.topic_overrides("old") == {"segment.bytes": "5000", "retention.ms": "1000"}
        log = broker.log_manager.get(TopicPartition("old", 0))
        assert log is not None
        assert log.config.segment_bytes == 5000


async def alter_one(broker: Broker, resource_type: int, name: str, key: str, value: str) -> int:
    config = incremental_alter_configs.AlterableConfig(name=key, config_operation=OperationType.SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await ask(broker, handle_incremental_alter_configs, request, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


async def test_minimum_of_one_broker_is_refused_while_eligible_replicas_are_kept() -> None:
    key = "min.insync.replicas"
    async with running_broker() as broker:
        assert broker.features.keeps_eligible
        assert await change(broker, BROKER, "1", (key, OperationType.SET, "2")) is ErrorCode.INVALID_CONFIG
        assert await change(broker, BROKER, "1", (key, OperationType.DELETE, None)) is ErrorCode.NONE
        assert await change(broker, BROKER, "", (key, OperationType.SET, "2")) is ErrorCode.NONE
