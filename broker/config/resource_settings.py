"""The settings of consumer groups and of client metrics subscriptions: Kafka's keys, bounds and errors.

They are kept in the metadata store and described, like those of topics, so that tools and other brokers find what was
set. Nothing here goes by them: the settings of groups are for the group protocols of KIP-848, KIP-932 and KIP-1071,
which are not served, and no metrics are taken from clients (KIP-714). Kafka keeps them for a classic group, too, and
takes no metrics without a plug-in.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from oncelog.broker.config.settings import ConfigError, Setting, boolean, integer, named, string, strings
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ResourceType
from oncelog.protocol.errors import ErrorCode

LONGEST_NAME: Final = 1_000
_NO_PROTOCOL: Final = "the group protocol that it is for is not served"
_NO_METRICS: Final = "metrics are not taken from clients"
_SESSION: Final = "Time without a heartbeat after which a member leaves."
_DURATION: Final = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_MATCHABLE: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _ms(default: int, doc: str, low: int, high: int | None = None) -> Any:
    return integer(default, doc, low=low, high=high, unused=_NO_PROTOCOL)


GROUP_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    named(
        {
            "consumer.session.timeout.ms": _ms(45_000, _SESSION, 45_000, 60_000),
            "consumer.heartbeat.interval.ms": _ms(5_000, "Interval of heartbeats.", 5_000, 15_000),
            "consumer.assignment.interval.ms": _ms(1_000, "Least time between two assignments.", 0, 15_000),
            "share.session.timeout.ms": _ms(45_000, _SESSION, 45_000, 60_000),
            "share.heartbeat.interval.ms": _ms(5_000, "Interval of heartbeats.", 5_000, 15_000),
            "share.assignment.interval.ms": _ms(1_000, "Least time between two assignments.", 0, 15_000),
            "share.record.lock.duration.ms": _ms(30_000, "Time for which a record is acquired.", 15_000, 60_000),
            "share.delivery.count.limit": integer(5, "Deliveries of a record.", low=2, high=10, unused=_NO_PROTOCOL),
            "share.partition.max.record.locks": integer(
                2_000, "Acquired records of a partition.", low=100, high=4_000, unused=_NO_PROTOCOL
            ),
            "share.auto.offset.reset": string(
                "latest", "Where a new group begins: earliest, latest or by_duration:PnDTnHnMnS.", unused=_NO_PROTOCOL
            ),
            "share.isolation.level": string(
                "read_uncommitted",
                "Which transactional records are delivered.",
                choices=("read_committed", "read_uncommitted"),
                unused=_NO_PROTOCOL,
            ),
            "share.renew.acknowledge.enable": boolean(True, "Whether a lock can be renewed.", unused=_NO_PROTOCOL),
            "streams.session.timeout.ms": _ms(45_000, _SESSION, 45_000, 60_000),
            "streams.heartbeat.interval.ms": _ms(5_000, "Interval of heartbeats.", 5_000, 15_000),
            "streams.assignment.interval.ms": _ms(1_000, "Least time between two assignments.", 0, 15_000),
            "streams.initial.rebalance.delay.ms": _ms(3_000, "Time that a new group waits for members.", 0),
            "streams.num.standby.replicas": integer(0, "Standbys of each task.", low=0, high=2, unused=_NO_PROTOCOL),
        }
    )
)  # fmt: skip
"""Those of Kafka 4.3, with its bounds."""

CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    named(
        {
            "interval.ms": integer(
                300_000, "Interval at which clients push metrics.", low=100, high=3_600_000, unused=_NO_METRICS
            ),
            "match": strings((), "Which clients: key=regular expression,…; all if empty.", unused=_NO_METRICS),
            "metrics": strings((), "Prefixes of names of metrics; * is all of them.", unused=_NO_METRICS),
        }
    )
)

_WITHOUT_SYNONYM: Final = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)


def settings_of_resource(resource_type: ResourceType) -> Mapping[str, Setting]:
    return GROUP_SETTINGS if resource_type is ResourceType.GROUP else CLIENT_METRICS_SETTINGS


def group_synonym(key: str) -> str:
    """Return the name under which a broker has the default of a group's setting."""
    return key if key in _WITHOUT_SYNONYM else f"group.{key}"


def why_invalid_overrides(resource_type: ResourceType, overrides: Mapping[str, str]) -> ApiError | None:
    """Return why a group or a subscription must not have exactly these overrides, or None."""
    for key, text in overrides.items():
        error = (
            _why_invalid_group(key, text) if resource_type is ResourceType.GROUP else _why_invalid_metrics(key, text)
        )
        if error is not None:
            return error
    return None


def _why_invalid_group(key: str, text: str) -> ApiError | None:
    if key not in GROUP_SETTINGS:
        return ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
    if key == "share.auto.offset.reset" and text not in ("earliest", "latest") and not _DURATION.fullmatch(text):
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{key}={text!r} is not valid: expected earliest, latest or by_duration:PnDTnHnMnS",
        )
    return _why_unparsable(GROUP_SETTINGS[key], text, ErrorCode.INVALID_CONFIG)


def _why_invalid_metrics(key: str, text: str) -> ApiError | None:
    if key not in CLIENT_METRICS_SETTINGS:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    if key == "match":
        for pattern in CLIENT_METRICS_SETTINGS[key].parse(text) or ():
            if not _is_pattern(pattern):
                return ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    return _why_unparsable(CLIENT_METRICS_SETTINGS[key], text, ErrorCode.INVALID_REQUEST)


def _is_pattern(text: str) -> bool:
    name, equals, expression = text.partition("=")
    if not equals or "=" in expression or name.strip() not in _MATCHABLE:
        return False
    try:
        re.compile(expression.strip())
    except re.error:
        return False
    return True


def _why_unparsable(setting: Setting, text: str, code: ErrorCode) -> ApiError | None:
    try:
        setting.parse(text)
    except ConfigError as error:
        return ApiError(code, str(error))
    return None
