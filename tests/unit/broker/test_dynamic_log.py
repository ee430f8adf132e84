"""A changed dynamic setting is in the log of the broker that goes by it."""

import logging

import pytest

from oncelog.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.handlers.administration import ask, running_broker, settle


def change(key: str, value: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=key, config_operation=0, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])]
    )


async def test_changed_dynamic_setting_is_logged_once_with_both_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oncelog.broker.config.dynamic_config")
    async with running_broker() as broker:
        for key, value in (("log.retention.ms", "60000"), ("log.retention.ms", "60000"), ("message.max.bytes", "2000")):
            handler, response = handle_incremental_alter_configs, IncrementalAlterConfigsResponse
            changed = await ask(broker, handler, change(key, value), response)
            assert changed.responses[0].error_code == ErrorCode.NONE
            await settle()
        refused = await ask(broker, handler, change("log.cleanup.policy", ""), response)
        assert refused.responses[0].error_code != ErrorCode.NONE
    assert [
        record.getMessage() for record in caplog.records if record.name == "oncelog.broker.config.dynamic_config"
    ] == [
        "log.retention.ms is 60000 from now on, was not set (dynamic configuration)",
        "message.max.bytes is 2000 from now on, was 1048588 (dynamic configuration)",
    ]
