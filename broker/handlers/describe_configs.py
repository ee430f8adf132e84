"""DescribeConfigs (API key 32): the settings of topics, brokers, groups and client metrics subscriptions.

And the levels of this broker's loggers. Settings are declared in ``oncelog.broker.config``.

A broker describes itself and topics, from memory; another broker must be sent the request itself. Without keys, all
settings are described. A resource that is named again is not described again: a response would be thousands of times as
large as its request. Resources that set the same are described and encoded once. Many are described in slices.

Versions: 1 has the source of a value and, on request, what stands behind it; 3 adds types and, on request,
documentation; 4 is flexible.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, TypeAlias

from oncelog.broker.config.settings import Setting
from oncelog.broker.config.topic_config import TOPIC_SETTINGS, effective_overrides
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.config_description import ConfigDescription, ConfigEntry
from oncelog.broker.handlers.config_requests import resource_of, why_not_allowed
from oncelog.broker.parts import Broker
from oncelog.broker.process.log_levels import level_names
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import SharedList

_UNITS_PER_RESOURCE: Final = 15
_UNITS_PER_SETTING: Final = 2


def refuse_describe_configs(request: DescribeConfigsRequest, version: int, error: ErrorCode) -> DescribeConfigsResponse:
    """Return the error for every resource."""
    return DescribeConfigsResponse(results=[_refused(requested, ApiError(error)) for requested in request.resources])


@handles(ApiKey.DESCRIBE_CONFIGS, versions="1-4", error_response=refuse_describe_configs)
def handle_describe_configs(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> Outcome:
    resources: dict[tuple[int, str], DescribeConfigsResource] = {}
    for requested in request.resources:
        resources.setdefault((requested.resource_type, requested.resource_name), requested)
    budget = new_budget()
    steps = _describe_all(_Descriptions(broker, request), context, resources.values(), budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _describe_all(
    described: "_Descriptions",
    context: RequestContext,
    resources: Iterable[DescribeConfigsResource],
    budget: WorkBudget,
) -> Steps[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    for requested in resources:
        known = described.count
        response.results.append(_describe(described, context, requested))
        budget.left -= _UNITS_PER_RESOURCE + _UNITS_PER_SETTING * (described.count - known)
        if budget.left <= 0:
            yield None
    return response


_Configs: TypeAlias = SharedList[DescribeConfigsResourceResult]


class _Descriptions:
    """What the resources of one request are described by: those that set the same share it, and it is encoded once."""

    def __init__(self, broker: Broker, request: DescribeConfigsRequest) -> None:
        self.broker = broker
        self._request = request
        self._source = ConfigDescription(broker)
        self._whole: dict[Hashable, dict[str, DescribeConfigsResourceResult]] = {}
        self._chosen: dict[Hashable, _Configs] = {}
        self.count = 0
        """Settings that were described or chosen so far, without those that are shared."""

    def of(self, resource: ConfigResource, keys: list[str] | None) -> _Configs:
        """Return the requested settings, in the order in which they are declared."""
        overrides = _overrides(self.broker, resource)
        same = (resource.type, resource.name if overrides is None else tuple(sorted(overrides.items())))
        wanted = frozenset(keys or ())
        chosen = self._chosen.get((same, wanted))
        if chosen is None:
            whole = self._whole.get(same)
            if whole is None:
                whole = self._whole[same] = self._describe(resource, overrides or {})
                self.count += len(whole)
            names = [key for key in whole if key in wanted] if wanted else whole
            chosen = self._chosen[same, wanted] = SharedList(whole[key] for key in names)
            self.count += len(chosen)
        return chosen

    def _describe(
        self, resource: ConfigResource, overrides: Mapping[str, str]
    ) -> dict[str, DescribeConfigsResourceResult]:
        if resource.type is ResourceType.BROKER_LOGGER:
            return {name: _level(name, level) for name, level in level_names().items()}
        if resource.type is ResourceType.TOPIC:
            own = {key: self._source.topic_entry(key, overrides) for key in overrides if key in TOPIC_SETTINGS}
            return self._inherited_by_topics | {key: _config(entry, self._request) for key, entry in own.items()}
        entries = _entries(self._source, resource, overrides)
        return {entry.key: _config(entry, self._request) for entry in entries}

    @cached_property
    def _inherited_by_topics(self) -> dict[str, DescribeConfigsResourceResult]:
        return {key: _config(self._source.topic_entry(key, {}), self._request) for key in TOPIC_SETTINGS}


def _describe(
    described: _Descriptions, context: RequestContext, requested: DescribeConfigsResource
) -> DescribeConfigsResult:
    resource_type, name = requested.resource_type, requested.resource_name
    refused = why_not_allowed(described.broker, context, Operation.DESCRIBE_CONFIGS, resource_type, name)
    if refused is not None:
        return _refused(requested, refused)
    resource = resource_of(described.broker, resource_type, name)
    if isinstance(resource, ApiError):
        return _refused(requested, resource)
    configs = described.of(resource, requested.configuration_keys)
    return DescribeConfigsResult(error_message=None, resource_type=resource_type, resource_name=name, configs=configs)


def _overrides(broker: Broker, resource: ConfigResource) -> Mapping[str, str] | None:
    """Return what the description of a resource depends on; None for brokers and their loggers, which are few."""
    if resource.type is ResourceType.TOPIC:
        return effective_overrides(resource.name, broker.configs.topic_overrides(resource.name))
    if resource.type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        return broker.configs.overrides(resource)
    return None


def _entries(
    source: ConfigDescription, resource: ConfigResource, overrides: Mapping[str, str]
) -> Iterator[ConfigEntry]:
    if resource.type is ResourceType.GROUP:
        return source.group(overrides)
    if resource.type is ResourceType.CLIENT_METRICS:
        return source.client_metrics(overrides)
    return source.broker() if resource.name else source.all_brokers()


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.key,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.key, value=each.value, source=each.source) for each in synonyms],
        config_type=entry.setting.kind,
        documentation=_documentation(entry.setting) if request.include_documentation else None,
    )


def _documentation(setting: Setting) -> str:
    return f"{setting.doc} It has no effect here: {setting.unused}." if setting.unused else setting.doc


def _level(logger_name: str, level: str) -> DescribeConfigsResourceResult:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return DescribeConfigsResourceResult(name=logger_name, value=level, config_source=source)


def _refused(requested: DescribeConfigsResource, error: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
    )
