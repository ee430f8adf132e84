"""SASL as the settings have it: which mechanisms a listener serves, for whom, and the broker's own login.

A setting is looked for from the narrowest to the widest scope::

    listener.name.NAME.MECHANISM.KEY    listener.name.NAME.KEY    MECHANISM.KEY    KEY

with the names of listener and mechanism in lower case. What cannot work is refused at the start, with the setting to
change: a mechanism that is not served, PLAIN without users, a login module of another mechanism, brokers that could not
log in to each other. No message contains a value that may be secret.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.listener_limits import listener_of_limit
from oncelog.broker.config.settings import ConfigError
from oncelog.protocol.sasl.jaas import PLAIN_MODULE
from oncelog.protocol.sasl.login import SaslLogin, module_for, parse_login
from oncelog.protocol.sasl.mechanisms import LOGIN_MODULES, PLAIN, SERVED

_JAAS: Final = "sasl.jaas.config"
_ENABLED: Final = "sasl.enabled.mechanisms"
_REAUTH: Final = "connections.max.reauth.ms"
_USER: Final = "user_"
_INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
_PREFIXED: Final = re.compile(
    r"(?P<listener>listener\.name\.[^.]+\.)?"
    rf"(?P<mechanism>({'|'.join(each.lower() for each in LOGIN_MODULES)})\.)?"
    rf"({'|'.join(map(re.escape, (_JAAS, _ENABLED, _REAUTH)))})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """What one listener serves."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(repr=False)
    """The password of each user of PLAIN."""
    max_reauth_ms: Mapping[str, int]
    """By mechanism: milliseconds after which a client must have authenticated again; 0: never."""


def is_prefixed(key: str) -> bool:
    """Return whether a key, which is no row of the table, is such a row for one listener or mechanism."""
    return _PREFIXED.fullmatch(key) is not None or listener_of_limit(key) is not None


def is_secret(key: str) -> bool:
    """Return whether the value of a prefixed key must not be shown."""
    return key.endswith(_JAAS)


def parse_sasl_listener(config: BrokerConfig, name: str) -> SaslListener:
    """Read the settings of a SASL listener. Raises ``ConfigError``."""
    key, text = _find(config, name, "", _ENABLED)
    mechanisms = BROKER_SETTINGS[_ENABLED].parse(text)
    for mechanism in mechanisms:
        if mechanism not in SERVED:
            raise ConfigError(
                f"{key}={text} names {mechanism} for listener {name}, which is not served"
                f"{_kafkas_default(key, config)}: set {_narrow(name, '', _ENABLED)} to one or more of "
                f"{', '.join(SERVED)}"
            )
    if not mechanisms:
        raise ConfigError(f"{key} is empty for listener {name}: expected one or more of {', '.join(SERVED)}")
    return SaslListener(
        mechanisms=mechanisms,
        plain_users=_plain_users(config, name) if PLAIN in mechanisms else {},
        max_reauth_ms={mechanism: _max_reauth_ms(config, name, mechanism) for mechanism in mechanisms},
    )


def parse_inter_broker_login(config: BrokerConfig, name: str) -> SaslLogin:
    """Return with what this broker authenticates to others, on their listener of that name. Raises ``ConfigError``."""
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism not in SERVED:
        raise ConfigError(
            f"{_INTER_BROKER}={mechanism} is not served{_kafkas_default(_INTER_BROKER, config)}, and brokers reach "
            f"each other by listener {name}: set it to one of {', '.join(SERVED)}"
        )
    enabled = parse_sasl_listener(config, name).mechanisms
    if mechanism not in enabled:
        raise ConfigError(
            f"{_INTER_BROKER}={mechanism} is not enabled on listener {name}, by which brokers reach each other: add it "
            f"to {_narrow(name, '', _ENABLED)}"
        )
    key, text = _find(config, name, mechanism, _JAAS)
    remedy = f'{LOGIN_MODULES[mechanism]} required username="NAME" password="PASSWORD";'
    if not text:
        wanted = _narrow(name, mechanism, _JAAS)
        raise ConfigError(f"{wanted} is missing: this broker needs a login for the others; set it to {remedy}")
    try:
        return parse_login(mechanism, text)
    except ValueError as error:
        raise ConfigError(f"{key} {error}, for this broker's login to the others: expected {remedy}") from None


def refuse_useless(config: BrokerConfig, listeners: Iterable[str]) -> None:
    """Raise ``ConfigError`` for a setting of a listener that there is not, and for malformed login modules."""
    names = {name.lower() for name in listeners}
    for key, text in config.prefixed.items():
        match = _PREFIXED.fullmatch(key)
        listener = listener_of_limit(key) or ""
        if match is not None:
            listener = (match["listener"] or "").removeprefix("listener.name.").removesuffix(".")
        if listener and listener not in names:
            raise ConfigError(
                f"{key} is for a listener {listener}, which is none of listeners: expected one of "
                f"{', '.join(sorted(names))}, in lower case"
            )
        mechanism = "" if match is None else (match["mechanism"] or "").removesuffix(".").upper()
        if mechanism and key.endswith(_JAAS):
            _require_module(key, text, mechanism)


def _plain_users(config: BrokerConfig, name: str) -> Mapping[str, str]:
    key, text = _find(config, name, PLAIN, _JAAS)
    remedy = f'{PLAIN_MODULE} required user_NAME="PASSWORD";'
    if not text:
        raise ConfigError(
            f"{PLAIN} is enabled on listener {name} without users: set {_narrow(name, PLAIN, _JAAS)} to {remedy}"
        )
    options = _require_module(key, text, PLAIN)
    users = {option.removeprefix(_USER): value for option, value in options.items() if option.startswith(_USER)}
    if not users or not all(users) or not all(users.values()):
        raise ConfigError(f"{key} has no users, or one without a name or a password: expected {remedy}")
    return users


def _require_module(key: str, text: str, mechanism: str) -> Mapping[str, str]:
    try:
        return module_for(mechanism, text).options
    except ValueError as error:
        raise ConfigError(f"{key} {error}") from None


def _max_reauth_ms(config: BrokerConfig, name: str, mechanism: str) -> int:
    key, text = _find(config, name, mechanism, _REAUTH)
    try:
        value: int = BROKER_SETTINGS[_REAUTH].parse(text)
    except ConfigError:
        raise ConfigError(f"{key}={text!r} is not valid: expected {BROKER_SETTINGS[_REAUTH].expected}") from None
    return value


def _find(config: BrokerConfig, name: str, mechanism: str, key: str) -> tuple[str, str]:
    """Return the key of the narrowest scope that is set, and its text; the default's if none is."""
    for scoped in (_narrow(name, mechanism, key), _narrow(name, "", key), _narrow("", mechanism, key)):
        if scoped in config.prefixed:
            return scoped, config.prefixed[scoped].strip()
    setting = BROKER_SETTINGS[key]
    return key, config.given.get(key, setting.format(setting.default) or "").strip()


def _narrow(name: str, mechanism: str, key: str) -> str:
    listener = f"listener.name.{name.lower()}." if name else ""
    return f"{listener}{mechanism.lower()}.{key}" if mechanism else f"{listener}{key}"


def _kafkas_default(key: str, config: BrokerConfig) -> str:
    return "" if key in config.given or key in config.prefixed else " and is Kafka's default"
