"""Settings that are for one listener, or one SASL mechanism: which keys there are, and what is wrong with them."""

import re
from collections.abc import Collection, Iterable

from oncelog.broker.config import oauth_config, sasl_config, tls_config
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listener_limits import listener_of_limit
from oncelog.broker.config.settings import ConfigError


def is_prefixed(key: str) -> bool:
    """Return whether a key, which is no row of the table, is such a row for one listener or mechanism."""
    return _match(key) is not None or listener_of_limit(key) is not None


def is_dynamic(key: str) -> bool:
    """Return whether a prefixed key can change in a running broker."""
    return tls_config.is_dynamic(key) or listener_of_limit(key) is not None


def is_secret(key: str) -> bool:
    """Return whether the value of a prefixed key must not be shown."""
    return sasl_config.is_secret(key) or oauth_config.is_secret(key) or tls_config.is_secret(key)


def _match(key: str) -> re.Match[str] | None:
    return tls_config.match_prefixed(key) or sasl_config.match_prefixed(key) or oauth_config.match_prefixed(key)


def why_no_listener(key: str, listener: str, names: Collection[str]) -> str | None:
    """Return why a setting has no listener that it is for, or None; ``names`` are those that there are."""
    if listener in names:
        return None
    return (
        f"{key} is for a listener {listener}, which is none of listeners: expected one of "
        f"{', '.join(sorted(names))}, in lower case"
    )


def refuse_useless(config: BrokerConfig, listeners: Iterable[str], with_tls: Collection[str]) -> None:
    """Raise ``ConfigError`` for a setting of a listener that there is not, and for malformed login modules.

    ``with_tls`` are those of the listeners for which settings of TLS have an effect.
    """
    names = {name.lower() for name in listeners}
    secured = {name.lower() for name in with_tls}
    for key in config.prefixed:
        match = _match(key)
        listener = listener_of_limit(key) or ""
        if match is not None:
            listener = (match["listener"] or "").removeprefix("listener.name.").removesuffix(".")
        reason = why_no_listener(key, listener, names) if listener else None
        if reason is not None:
            raise ConfigError(reason)
        if tls_config.match_prefixed(key) is not None and listener not in secured:
            raise ConfigError(
                f"{key} has no effect: listener {listener} has no TLS; make it SSL or SASL_SSL in "
                "listener.security.protocol.map, or leave the setting out"
            )
    sasl_config.refuse_malformed_modules(config)
