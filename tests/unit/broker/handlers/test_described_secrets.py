"""Secrets among the settings are neither described nor accepted over the wire."""

from oncelog.broker.handlers.describe_configs import handle_describe_configs
from oncelog.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.config_changes import ResourceType
from oncelog.protocol.compiler import encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.handlers.administration import ask, running_broker
from tests.unit.broker.virtual_time import in_virtual_time

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PREFIX = "listener.name.secure"
SETTINGS = {
    "listeners": "SECURE://localhost:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN",
    f"{PREFIX}.plain.sasl.jaas.config": f'{_MODULE} user_alice="wonderland";',
    "sasl_jaas_config": f'{_MODULE} user_bob="wonderland";',
}


async def alter(broker: Broker, key: str, value: str) -> ErrorCode:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await ask(broker, handle_incremental_alter_configs, request, IncrementalAlterConfigsResponse)
    return ErrorCode(response.responses[0].error_code)


@in_virtual_time
async def test_described_settings_of_a_listener_show_no_secret() -> None:
    async with running_broker(**SETTINGS) as broker:
        requested = DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=str(broker.broker_id), configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[requested], include_synonyms=True, include_documentation=True)
        response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
        configs = {config.name: config for config in response.results[0].configs}
        assert configs[f"{PREFIX}.sasl.enabled.mechanisms"].value == "PLAIN"
        for key in (f"{PREFIX}.plain.sasl.jaas.config", "sasl.jaas.config"):
            assert configs[key].is_sensitive
            assert configs[key].value is None
        assert b"wonderland" not in encode(response, 4)


@in_virtual_time
async def test_altered_login_module_is_refused() -> None:
    async with running_broker(**SETTINGS) as broker:
        jaas = "com.sun.security.auth.module.JndiLoginModule required;"
        for key in (f"{PREFIX}.plain.sasl.jaas.config", "sasl.jaas.config", "sasl.enabled.mechanisms"):
            assert await alter(broker, key, jaas) == ErrorCode.INVALID_REQUEST


@in_virtual_time
async def test_users_have_no_configuration_over_the_wire() -> None:
    async with running_broker() as broker:
        for resource_type in (ResourceType.USER, 1, 3):
            requested = DescribeConfigsResource(
                resource_type=resource_type, resource_name="alice", configuration_keys=None
            )
            request = DescribeConfigsRequest(resources=[requested])
            response = await ask(broker, handle_describe_configs, request, DescribeConfigsResponse)
            assert response.results[0].error_code == ErrorCode.INVALID_REQUEST
