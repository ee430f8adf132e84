"""The limits of connections that single listeners have, by the keys ``listener.name.NAME.KEY``, in lower case.

As in Kafka they can change while a broker runs, for one broker and for all.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.settings import INT32_MAX, ConfigError

_CONNECTIONS: Final = "max.connections"
_RATE: Final = "max.connection.creation.rate"
_KEY: Final = re.compile(
    rf"listener\.name\.(?P<listener>[^.]+)\.(?P<limit>{re.escape(_CONNECTIONS)}|{re.escape(_RATE)})"
)


class ListenerLimits(NamedTuple):
    """The limits of one listener."""

    max_connections: int = INT32_MAX
    max_connection_creation_rate: int = INT32_MAX


def listener_of_limit(key: str) -> str | None:
    """Return the listener that a key is for, if it is such a limit."""
    match = _KEY.fullmatch(key)
    return None if match is None else match["listener"]


def parse_listener_limits(config: BrokerConfig, listeners: Iterable[str]) -> dict[str, ListenerLimits]:
    """Return the limits of each listener. Raises ``ConfigError``."""
    return {name: ListenerLimits(_parse(config, name, _CONNECTIONS), _parse(config, name, _RATE)) for name in listeners}


def why_invalid_limit(key: str, value: str) -> str | None:
    """Return why a limit of a listener cannot have a value, or None."""
    match = _KEY.fullmatch(key)
    assert match is not None
    setting = BROKER_SETTINGS[match["limit"]]
    try:
        setting.parse(value)
    except ConfigError:
        return f"{key}={value!r} is not valid: expected {setting.expected}"
    return None


def _parse(config: BrokerConfig, listener: str, key: str) -> int:
    whole = f"listener.name.{listener.lower()}.{key}"
    text = config.prefixed.get(whole)
    if text is None:
        return INT32_MAX
    reason = why_invalid_limit(whole, text)
    if reason is not None:
        raise ConfigError(reason)
    value: int = BROKER_SETTINGS[key].parse(text)
    return value
