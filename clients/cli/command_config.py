"""``--command-config``: a file of properties with which commands connect and authenticate, as Kafka's tools have it.

Passwords are in the file, and not among the arguments, which every process of the machine can read.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from oncelog.clients.security_config import (
    INLINE_FILES,
    MAY_BE_EMPTY,
    SECURITY_PROPERTIES,
    SEVERAL,
    SWITCHES,
    SecurityConfig,
)
from oncelog.clients.setting_error import SettingError
from oncelog.protocol.properties import parse_properties

_LONGEST: Final = 1 << 20
_TRUTHS: Final = {"true": True, "false": False}
_SECURITY: Final = ("security.", "sasl.", "ssl.")
"""Beginnings of keys that would be missed in silence."""


def read_command_config(path: str, warn: Callable[[str], None]) -> SecurityConfig:
    """Read a file. Raises ``click.BadParameter`` for settings, and files of TLS, that cannot be used."""
    found = parse_properties(_read(path, repr(path)))
    keys = {**SECURITY_PROPERTIES, **INLINE_FILES}
    unserved = [key for key in found if key.startswith(_SECURITY) and key not in keys]
    if unserved:
        warn(f"Warning: {path}: these have no effect: {', '.join(unserved)}")
    given = {keys[key]: key for key, value in found.items() if key in keys and (value or keys[key] in MAY_BE_EMPTY)}
    fields = {name: _value(path, key, name, found[key]) for name, key in given.items()}
    config = SecurityConfig(**fields)
    try:
        config.make_tls_context()
    except SettingError as error:
        raise click.BadParameter(f"{path!r}: {error.spelt(_spelling(given))}") from None
    return config


def _value(path: str, key: str, name: str, text: str) -> Any:
    if key in INLINE_FILES:
        return _read(text, f"{path!r}: {key} {text!r}")
    if name in SWITCHES:
        if text.lower() not in _TRUTHS:
            raise click.BadParameter(f"{path!r}: {key} must be true or false")
        return _TRUTHS[text.lower()]
    return tuple(each.strip() for each in text.split(",")) if name in SEVERAL else text


def _read(path: str, what: str) -> str:
    try:
        with click.open_file(path, encoding="utf-8") as file:
            content: str = file.read(_LONGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{what} cannot be read: {error}") from None
    return content


def _spelling(given: Mapping[str, str]) -> Callable[[str], str]:
    """Return how the file names a setting: by its key there, else by Kafka's."""
    return lambda name: given.get(name, name.replace("_", "."))
