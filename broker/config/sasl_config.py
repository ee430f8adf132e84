"""SASL as the settings have it: which mechanisms a listener serves, for whom, and the broker's own login.

A setting is looked for in its scopes (``oncelog.broker.config.scopes``). What cannot work is refused at the start, with
the setting to change: a mechanism that is not served, PLAIN without users, a login module of another mechanism, brokers
that could not log in to each other. No message contains a value that may be secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS, BrokerConfig
from oncelog.broker.config.oauth_config import OauthListener, parse_oauth_listener, parse_oauth_login_of_broker
from oncelog.broker.config.scopes import find, narrow
from oncelog.broker.config.settings import ConfigError
from oncelog.protocol.sasl.jaas import PLAIN_MODULE
from oncelog.protocol.sasl.login import Login, module_for, parse_login
from oncelog.protocol.sasl.mechanisms import LOGIN_MODULES, PLAIN, SERVED
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER

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
    oauth: OauthListener | None = None
    """Which tokens OAUTHBEARER accepts; None if it is not served."""


def match_prefixed(key: str) -> re.Match[str] | None:
    """Return the parts ``listener`` and ``mechanism`` of a setting of one of them, or both; None if it is none."""
    return _PREFIXED.fullmatch(key)


def is_secret(key: str) -> bool:
    """Return whether the value of a prefixed key must not be shown."""
    return key.endswith(_JAAS)


def parse_sasl_listener(config: BrokerConfig, name: str) -> SaslListener:
    """Read the settings of a SASL listener. Raises ``ConfigError``."""
    key, text = find(config, name, "", _ENABLED)
    mechanisms = BROKER_SETTINGS[_ENABLED].parse(text)
    for mechanism in mechanisms:
        if mechanism not in SERVED:
            raise ConfigError(
                f"{key}={text} names {mechanism} for listener {name}, which is not served"
                f"{_kafkas_default(key, config)}: set {narrow(name, '', _ENABLED)} to one or more of "
                f"{', '.join(SERVED)}"
            )
    if not mechanisms:
        raise ConfigError(f"{key} is empty for listener {name}: expected one or more of {', '.join(SERVED)}")
    return SaslListener(
        mechanisms=mechanisms,
        plain_users=_plain_users(config, name) if PLAIN in mechanisms else {},
        max_reauth_ms={mechanism: _max_reauth_ms(config, name, mechanism) for mechanism in mechanisms},
        oauth=parse_oauth_listener(config, name) if OAUTHBEARER in mechanisms else None,
    )


def parse_inter_broker_login(config: BrokerConfig, name: str) -> Login:
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
            f"to {narrow(name, '', _ENABLED)}"
        )
    if mechanism == OAUTHBEARER:
        return parse_oauth_login_of_broker(config, name)
    key, text = find(config, name, mechanism, _JAAS)
    remedy = f'{LOGIN_MODULES[mechanism]} required username="NAME" password="PASSWORD";'
    if not text:
        wanted = narrow(name, mechanism, _JAAS)
        raise ConfigError(f"{wanted} is missing: this broker needs a login for the others; set it to {remedy}")
    try:
        return parse_login(mechanism, text)
    except ValueError as error:
        raise ConfigError(f"{key} {error}, for this broker's login to the others: expected {remedy}") from None


def refuse_malformed_modules(config: BrokerConfig) -> None:
    """Raise ``ConfigError`` for a login module that is not the one of its mechanism."""
    for key, text in config.prefixed.items():
        match = _PREFIXED.fullmatch(key)
        mechanism = "" if match is None else (match["mechanism"] or "").removesuffix(".").upper()
        if mechanism and key.endswith(_JAAS):
            _require_module(key, text, mechanism)


def _plain_users(config: BrokerConfig, name: str) -> Mapping[str, str]:
    key, text = find(config, name, PLAIN, _JAAS)
    remedy = f'{PLAIN_MODULE} required user_NAME="PASSWORD";'
    if not text:
        raise ConfigError(
            f"{PLAIN} is enabled on listener {name} without users: set {narrow(name, PLAIN, _JAAS)} to {remedy}"
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
    key, text = find(config, name, mechanism, _REAUTH)
    try:
        value: int = BROKER_SETTINGS[_REAUTH].parse(text)
    except ConfigError:
        raise ConfigError(f"{key}={text!r} is not valid: expected {BROKER_SETTINGS[_REAUTH].expected}") from None
    return value


def _kafkas_default(key: str, config: BrokerConfig) -> str:
    return "" if key in config.given or key in config.prefixed else " and is Kafka's default"
