"""Which overrides a topic or a broker may have: ``coordinator``'s question to the broker's tables of settings."""

from collections.abc import Mapping

from broker import topic_config
from broker.config import BROKER_SETTINGS, BrokerConfig
from broker.dynamic_config import why_not_dynamic
from broker.settings import Kind
from broker.topic_config import TOPIC_SETTINGS
from coordinator.controller.api_error import ApiError
from coordinator.controller.config_changes import ConfigResource, ResourceType
from protocol.errors import ErrorCode


class ConfigRules:
    """Implements ``coordinator.controller.config_changes.ConfigValidator``."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def why_invalid(self, resource: ConfigResource, overrides: Mapping[str, str]) -> ApiError | None:
        if resource.type is not ResourceType.TOPIC:
            return _why_not_dynamic(overrides)
        for key, value in overrides.items():
            reason = topic_config.validate(key, value)
            if reason is not None:
                return ApiError(ErrorCode.INVALID_CONFIG, reason)
        return None

    def is_list(self, resource: ConfigResource, key: str) -> bool:
        table = TOPIC_SETTINGS if resource.type is ResourceType.TOPIC else BROKER_SETTINGS
        return key in table and table[key].kind is Kind.LIST

    def default_text(self, resource: ConfigResource, key: str) -> str:
        if resource.type is ResourceType.TOPIC:
            setting, value = TOPIC_SETTINGS[key], topic_config.default_value(self._config, key)
        else:
            setting = BROKER_SETTINGS[key]
            value = setting.default
        return setting.format(value) or ""


def _why_not_dynamic(overrides: Mapping[str, str]) -> ApiError | None:
    for key, value in overrides.items():
        reason = why_not_dynamic(key, value)
        if reason is not None:
            return ApiError(ErrorCode.INVALID_REQUEST, reason)
    return None
