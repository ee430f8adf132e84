"""Topic settings that differ from every default, made from the table, and what brokers know of a topic's."""

from collections.abc import Mapping
from typing import Any

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic_config import current_config
from oncelog.broker.config.settings import Kind, Setting
from oncelog.broker.config.topic_config import TOPIC_SETTINGS, default_value, effective_overrides, log_config, validate
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.simulation.simulated_cluster import ClusterBroker

TOPIC_RESOURCE = 2
TOPIC_CONFIG_SOURCE = 1
DESCRIBE_CONFIGS_VERSION = 4


def unusual_overrides(config: BrokerConfig) -> dict[str, str]:
    """A valid value for every topic setting that is not the default of a broker with this configuration.

    Settings of which only the default is accepted (``remote.storage.enable``) are left out."""
    values = {key: _other_value(key, setting, default_value(config, key)) for key, setting in TOPIC_SETTINGS.items()}
    return {key: value for key, value in values.items() if value is not None}


def _other_value(key: str, setting: Setting, default: Any) -> str | None:
    for candidate in _candidates(setting, default):
        text = setting.format(candidate)
        if text is not None and candidate != default and validate(key, text) is None:
            return text
    return None


def _candidates(setting: Setting, default: Any) -> list[Any]:
    match setting.kind:
        case Kind.BOOLEAN:
            return [not default]
        case Kind.INT | Kind.LONG | Kind.SHORT:
            return [default + 1, default - 1, 5, setting.low]
        case Kind.DOUBLE:
            return [0.25, 0.75]
        case Kind.LIST:
            return [(choice,) for choice in setting.choices] or [("*",)]
        case _:
            return [*setting.choices] or ["2.8-IV1"]


def assert_settings_are_known(broker: ClusterBroker, topic: str, overrides: Mapping[str, str]) -> None:
    """A broker knows the overrides of a topic, and every log of it here is run by them."""
    running = broker.running
    assert dict(running.configs.topic_overrides(topic)) == dict(overrides), f"broker {broker.broker_id}, topic {topic}"
    current = current_config(running.config, running.configs, broker.broker_id)
    for log in running.log_manager:
        if log.topic_partition.topic == topic:
            expected = log_config(current, effective_overrides(topic, overrides))
            assert log.config == expected, f"broker {broker.broker_id}, {log.topic_partition}"


async def described_overrides(broker: ClusterBroker, topic: str) -> dict[str, str]:
    """What a broker returns for DescribeConfigs of the topic's own settings."""
    requested = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    client = await broker.client()
    try:
        response = await client.call(DescribeConfigsRequest(resources=[requested]), DESCRIBE_CONFIGS_VERSION)
    finally:
        client.close()
    (result,) = response.results
    assert result.error_code == 0, result
    return {config.name: config.value for config in result.configs if config.config_source == TOPIC_CONFIG_SOURCE}
