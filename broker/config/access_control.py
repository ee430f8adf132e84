"""The settings of access control: whether there is an authorizer, and who its super users are.

A setting that would have no effect is refused: an operator who names super users expects that others are no such.
"""

import re
from collections.abc import Iterator
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.security_settings import AUTHORIZERS
from oncelog.broker.config.settings import ConfigError

_ANOTHER_AFTER_COMMA: Final = re.compile(r",\s*(User|Group):")
ANONYMOUS: Final = ("User", "ANONYMOUS")
"""The principal of a client that did not authenticate."""


def has_authorizer(config: BrokerConfig) -> bool:
    """Return whether access control lists decide what clients may do."""
    return bool(config.authorizer_class_name)


def super_users(config: BrokerConfig) -> frozenset[tuple[str, str]]:
    """Return the types and names of the super users. Raises ``ConfigError``."""
    principals = set()
    for text in filter(None, (part.strip() for part in config.super_users.split(";"))):
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ConfigError(f"super.users has {text!r}: expected type:name, such as User:{text.strip(':')}")
        principals.add((kind, name))
    return frozenset(principals)


def check(config: BrokerConfig) -> None:
    """Raise ``ConfigError`` for what does not fit together."""
    super_users(config)
    if config.authorizer_class_name not in ("", *AUTHORIZERS):
        raise ConfigError(
            f"authorizer.class.name={config.authorizer_class_name} is refused: other authorizers than "
            f"{' and '.join(AUTHORIZERS)} are not served, and a broker that ignored it would be open"
        )
    if has_authorizer(config):
        return
    for key, is_given in (
        ("super.users", bool(config.super_users.strip())),
        ("allow.everyone.if.no.acl.found", "allow.everyone.if.no.acl.found" in config.given),
    ):
        if is_given:
            raise ConfigError(
                f"{key} has no effect without authorizer.class.name, and every client may do everything: "
                f"set authorizer.class.name={AUTHORIZERS[0]}, or remove {key}"
            )


def warnings(config: BrokerConfig) -> Iterator[str]:
    """Yield what is probably a mistake."""
    if not has_authorizer(config):
        return
    users = super_users(config)
    if _ANOTHER_AFTER_COMMA.search(config.super_users):
        yield "super.users has a comma before a principal, and so is part of a name: semicolons separate principals"
    if not users:
        yield "super.users is empty: without access control lists no client can do anything, nor create the lists"
    if not config.is_embedded and _brokers_are_anonymous(config) and ANONYMOUS not in users:
        yield (
            "super.users has no User:ANONYMOUS, which is the principal of requests between brokers on a listener "
            "without authentication: unless an access control list allows it CLUSTER_ACTION on the cluster, the "
            "brokers refuse each other"
        )


def _brokers_are_anonymous(config: BrokerConfig) -> bool:
    """Return whether brokers do not authenticate to each other, as far as the settings say."""
    protocols = dict(
        pair.strip().partition(":")[::2] for pair in config.listener_security_protocol_map.split(",") if pair.strip()
    )
    name = config.inter_broker_listener_name
    protocol = config.security_inter_broker_protocol if name is None else protocols.get(name, "PLAINTEXT")
    return protocol == "PLAINTEXT"
