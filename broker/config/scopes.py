"""The scopes of a setting of SASL.

From the narrowest to the widest::

    listener.name.NAME.MECHANISM.KEY    listener.name.NAME.KEY    MECHANISM.KEY    KEY

with the names of listener and mechanism in lower case.
"""

from typing import Any

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.settings import ConfigError, Kind


def find(config: BrokerConfig, name: str, mechanism: str, key: str) -> tuple[str, str]:
    """Return the key of the narrowest scope that is set, and its text; the default's if none is."""
    for scoped in (narrow(name, mechanism, key), narrow(name, "", key), narrow("", mechanism, key)):
        if scoped in config.prefixed:
            return scoped, config.prefixed[scoped].strip()
    setting = BROKER_SETTINGS[key]
    return key, config.given.get(key, setting.format(setting.default) or "").strip()


def narrow(name: str, mechanism: str, key: str) -> str:
    """Return a key for one listener, one mechanism, or both; without them empty names."""
    listener = f"listener.name.{name.lower()}." if name else ""
    return f"{listener}{mechanism.lower()}.{key}" if mechanism else f"{listener}{key}"


def parse(config: BrokerConfig, name: str, mechanism: str, key: str) -> Any:
    """Return the value of a setting in its narrowest scope. Raises ``ConfigError``."""
    scoped, text = find(config, name, mechanism, key)
    setting = BROKER_SETTINGS[key]
    try:
        return setting.parse(text)
    except ConfigError:
        shown = "(hidden)" if setting.kind is Kind.PASSWORD else repr(text)
        raise ConfigError(f"{scoped}={shown} is not valid: expected {setting.expected}") from None
