"""The rights on the cluster that commands need, beside those on what they name."""

from collections.abc import Mapping
from typing import Final

import click

from oncelog.protocol.acl import AclOperation

_DESCRIBE: Final = AclOperation.DESCRIBE
_ALTER: Final = AclOperation.ALTER
_DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS

NEEDED: Final[Mapping[str, AclOperation]] = {
    "acl add": _ALTER,
    "acl list": _DESCRIBE,
    "acl remove": _ALTER,
    "config alter": _ALTER_CONFIGS,
    "config describe": _DESCRIBE_CONFIGS,
    "config list": _DESCRIBE_CONFIGS,
    "feature downgrade": _ALTER,
    "feature upgrade": _ALTER,
    "log-dirs": _DESCRIBE,
    "quota describe": _DESCRIBE_CONFIGS,
    "quota list": _DESCRIBE_CONFIGS,
    "quota remove": _ALTER_CONFIGS,
    "quota set": _ALTER_CONFIGS,
    "user add": _ALTER,
    "user list": _DESCRIBE,
    "user remove": _ALTER,
}
"""By the words of the command; each is what Apache Kafka requires of the requests that the command sends."""


def right_on_cluster() -> str:
    """Return how an administrator adds the right on the cluster that the command of this context needs."""
    denied = "this client may not do that"
    words = click.get_current_context().command_path.split()[1:]
    operation = NEEDED.get(" ".join(words))
    if operation is None:
        return denied
    name = operation.name.lower().replace("_", "-")
    return f"{denied}: an administrator adds the right with `oncelog acl add PRINCIPAL {name} --cluster`"
