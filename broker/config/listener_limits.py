"""The limits of connections that single listeners have, by the keys ``listener.name.NAME.KEY``, in lower case."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.settings import INT32_MAX, ConfigError

_CONNECTIONS: Final = "max.connections"
_RATE: Final = "max.connection.creation.rate"
_KEY: Final = re.compile(rf"listener\.name\.(?P<listener>[^.]+)\.({re.escape(_CONNECTIONS)}|{re.escape(_RATE)})")


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


def _parse(config: BrokerConfig, listener: str, key: str) -> int:
    whole = f"listener.name.{listener.lower()}.{key}"
    text = config.prefixed.get(whole)
    if text is None:
        return INT32_MAX
    try:
        value: int = BROKER_SETTINGS[key].parse(text)
    except ConfigError:
        raise ConfigError(f"{whole}={text!r} is not valid: expected {BROKER_SETTINGS[key].expected}") from None
    return value
