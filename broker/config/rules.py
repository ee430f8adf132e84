"""The overrides that a topic or a broker may have, for ``coordinator``, by the broker's tables of settings."""

from collections.abc import Mapping
from typing import Final

from oncelog.broker.config import topic_config
from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.dynamic_config import DynamicSettings, why_not_dynamic
from oncelog.broker.config.resource_settings import settings_of_resource, why_invalid_overrides
from oncelog.broker.config.settings import Kind, Setting
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS

_LEAST_SEGMENT_BYTES: Final = 1 << 20
"""Kafka's since 4.0 (KIP-1030)."""


class ConfigRules:
    """Implements ``oncelog.coordinator.controller.config_changes.ConfigValidator``."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.settings: DynamicSettings | None = None
        """Those of the running broker, once it has any."""

    def why_invalid(self, resource: ConfigResource, overrides: Mapping[str, str]) -> ApiError | None:
        if resource.type in (ResourceType.USER, ResourceType.QUOTA):
            return None  # Credentials and quotas are checked where they are requested.
        if resource.type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
            return why_invalid_overrides(resource.type, overrides)
        if resource.type is not ResourceType.TOPIC:
            reason = self._why_not_alterable(resource, overrides)
            reason = reason or self._why_too_many_files(resource, "log.segment.bytes", overrides)
            return None if reason is None else ApiError(ErrorCode.INVALID_REQUEST, reason)
        for key, value in overrides.items():
            reason = topic_config.validate(key, value)
            if reason is not None:
                return ApiError(ErrorCode.INVALID_CONFIG, reason)
        reason = topic_config.validate_together(self._config, overrides)
        reason = reason or topic_config.why_not_internal(resource.name, overrides)
        reason = reason or self._why_too_many_files(resource, "segment.bytes", overrides)
        return None if reason is None else ApiError(ErrorCode.INVALID_CONFIG, reason)

    def is_list(self, resource: ConfigResource, key: str) -> bool:
        table = _table_of(resource.type)
        return key in table and table[key].kind is Kind.LIST

    def default_text(self, resource: ConfigResource, key: str) -> str:
        if resource.type is ResourceType.TOPIC:
            setting, value = TOPIC_SETTINGS[key], topic_config.default_value(self._config, key)
        else:
            setting = _table_of(resource.type)[key]
            value = setting.default
        return setting.format(value) or ""

    def _why_too_many_files(self, resource: ConfigResource, key: str, overrides: Mapping[str, str]) -> str | None:
        """Return why segments must not get this size, or None. What a resource has from an older release may stay."""
        text = overrides.get(key)
        present = {} if self.settings is None else self.settings.present_overrides(resource)
        if text is None or text == present.get(key) or resource.name in INTERNAL_TOPICS:
            return None
        if int(text) >= _LEAST_SEGMENT_BYTES:
            return None
        return f"{key}={text} is not valid: expected at least {_LEAST_SEGMENT_BYTES}, because each segment is a file"

    def _why_not_alterable(self, resource: ConfigResource, overrides: Mapping[str, str]) -> str | None:
        if self.settings is not None:
            return self.settings.why_not_alterable(resource, overrides)
        return next(filter(None, (why_not_dynamic(key, value) for key, value in overrides.items())), None)


def _table_of(resource_type: ResourceType) -> Mapping[str, Setting]:
    if resource_type is ResourceType.TOPIC:
        return TOPIC_SETTINGS
    return BROKER_SETTINGS if resource_type is ResourceType.BROKER else settings_of_resource(resource_type)
