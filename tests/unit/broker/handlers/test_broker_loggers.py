"""DescribeConfigs and IncrementalAlterConfigs of BROKER_LOGGER: the levels of a running broker's loggers (KIP-412)."""

import logging
from collections.abc import Iterator

import pytest

from oncelog.broker.handlers.alter_configs import handle_alter_configs
from oncelog.coordinator.controller.config_changes import OperationType, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages import alter_configs
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tests.unit.broker.handlers.administration import ask, running_broker
from tests.unit.broker.handlers.test_config_administration import change, create, describe, described

LOGGER = ResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = OperationType
NAME = "oncelog.broker.process.log_levels"
DYNAMIC_BROKER_LOGGER = 6


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


async def test_describe_loggers_lists_modules_packages_and_root() -> None:
    async with running_broker() as broker:
        logging.getLogger().setLevel(logging.WARNING)
        result = await describe(broker, LOGGER, "1")
        levels = {config.name: config.value for config in result.configs}
        assert {"root", NAME, "oncelog", "oncelog.broker", "oncelog.coordinator.controller.controller"} <= levels.keys()
        assert (levels["root"], levels[NAME]) == ("WARN", "WARN")
        one = await described(broker, LOGGER, "1", NAME)
        assert (one.config_source, one.read_only, one.is_sensitive, one.synonyms) == (6, False, False, [])


async def test_set_level_of_a_logger_changes_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as broker:
        logging.getLogger().setLevel(logging.WARNING)
        assert await change(broker, LOGGER, "1", ("oncelog.broker.requests", SET, "DEBUG")) is ErrorCode.NONE
        assert (await described(broker, LOGGER, "1", "oncelog.broker.requests")).value == "DEBUG"
        assert (await described(broker, LOGGER, "1", NAME)).value == "WARN"
        caplog.clear()
        logging.getLogger("oncelog.broker.requests").debug("seen")
        assert await change(broker, LOGGER, "1", ("oncelog.broker.requests", DELETE, None)) is ErrorCode.NONE
        logging.getLogger("oncelog.broker.requests").debug("not seen")
        assert [record.message for record in caplog.records if record.name == "oncelog.broker.requests"] == ["seen"]
        assert (await described(broker, LOGGER, "1", "oncelog.broker.requests")).value == "WARN"


async def test_set_level_of_root_and_of_a_package_holds_for_the_modules_below() -> None:
    async with running_broker() as broker:
        assert await change(broker, LOGGER, "1", ("root", SET, "ERROR")) is ErrorCode.NONE
        assert (await described(broker, LOGGER, "1", NAME)).value == "ERROR"
        assert await change(broker, LOGGER, "1", ("oncelog.broker", SET, "TRACE")) is ErrorCode.NONE
        assert (await described(broker, LOGGER, "1", NAME)).value == "TRACE"
        assert (await described(broker, LOGGER, "1", "root")).value == "ERROR"


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (("root", SET, "DEBUGG"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "info"), ErrorCode.INVALID_CONFIG),
        (("root", SET, None), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("no.such", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("no.such", DELETE, None), ErrorCode.INVALID_CONFIG),
        (("root", APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", SUBTRACT, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", 7, "DEBUG"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_alter_loggers_with_one_refused_operation_changes_none(
    operation: tuple[str, int, str | None], error: ErrorCode
) -> None:
    """The codes of Kafka 4.3, except for an unknown operation, where Kafka fails with UNKNOWN_SERVER_ERROR."""
    async with running_broker() as broker:
        before = (await described(broker, LOGGER, "1", NAME)).value
        assert await change(broker, LOGGER, "1", (NAME, SET, "FATAL"), operation) is error
        assert (await described(broker, LOGGER, "1", NAME)).value == before != "FATAL"


async def test_alter_loggers_of_a_dry_run_or_twice_changes_nothing() -> None:
    async with running_broker() as broker:
        assert await change(broker, LOGGER, "1", (NAME, SET, "FATAL"), validate_only=True) is ErrorCode.NONE
        twice = ((NAME, SET, "FATAL"), (NAME, SET, "FATAL"))
        assert await change(broker, LOGGER, "1", *twice) is ErrorCode.INVALID_REQUEST
        assert (await described(broker, LOGGER, "1", NAME)).value != "FATAL"


@pytest.mark.parametrize("name", ["", "2", "x"])
async def test_loggers_of_another_broker_are_refused(name: str) -> None:
    async with running_broker() as broker:
        assert (await describe(broker, LOGGER, name)).error_code == ErrorCode.INVALID_REQUEST
        assert await change(broker, LOGGER, name, (NAME, SET, "FATAL")) is ErrorCode.INVALID_REQUEST


async def test_alter_configs_that_replaces_all_does_not_know_loggers() -> None:
    async with running_broker() as broker:
        await create(broker, "t")
        config = alter_configs.AlterableConfig(name="root", value="FATAL")
        resource = alter_configs.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[config])
        request = AlterConfigsRequest(resources=[resource])
        response = await ask(broker, handle_alter_configs, request, AlterConfigsResponse)
        assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST
        assert (await described(broker, LOGGER, "1", "root")).value != "FATAL"
