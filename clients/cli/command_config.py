"""``--command-config``: a file of properties with which commands authenticate, as Kafka's tools have it.

Passwords are in the file, and not among the arguments, which every process of the machine can read.
"""

from collections.abc import Callable
from typing import Final

import click

from oncelog.clients.security_config import SECURITY_PROPERTIES, SecurityConfig
from oncelog.protocol.properties import parse_properties

_LONGEST: Final = 1 << 20
_SECURITY: Final = ("security.", "sasl.", "ssl.")
"""Beginnings of keys that would be missed in silence."""


def read_command_config(path: str, warn: Callable[[str], None]) -> SecurityConfig:
    """Read a file. Raises ``click.BadParameter`` for settings that cannot work."""
    try:
        with click.open_file(path, encoding="utf-8") as file:
            found = parse_properties(file.read(_LONGEST))
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path!r} cannot be read: {error}") from None
    unserved = [key for key in found if key.startswith(_SECURITY) and key not in SECURITY_PROPERTIES]
    if unserved:
        warn(f"Warning: {path}: these have no effect: {', '.join(unserved)}")
    fields = {SECURITY_PROPERTIES[key]: value for key, value in found.items() if key in SECURITY_PROPERTIES and value}
    protocol = fields.get("security_protocol", "PLAINTEXT")
    if protocol not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        raise click.BadParameter(f"{path!r} has security.protocol={protocol}: expected PLAINTEXT or SASL_PLAINTEXT")
    config = SecurityConfig(**fields)  # type: ignore[arg-type]
    try:
        _ = config.login
    except ValueError as error:
        raise click.BadParameter(f"{path!r}: {error}") from None
    return config
