"""Forms of arguments that several commands take, parsed into values or refused with click's usage error."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from oncelog.clients.admin.configs import ConfigChange, Operation


def parse_assignments(values: Iterable[str], option: str) -> dict[str, str]:
    """``name=value`` each."""
    parsed = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", param_hint=option)
        parsed[name] = rest
    return parsed


def parse_config_changes(
    set_: Sequence[str], delete: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> list[ConfigChange]:
    """The changes of ``--set``, ``--delete``, ``--append`` and ``--subtract``; there must be one."""
    with_values = (
        ("--set", Operation.SET, set_),
        ("--append", Operation.APPEND, append),
        ("--subtract", Operation.SUBTRACT, subtract),
    )
    changes = [
        ConfigChange(name=name, operation=operation, value=value)
        for option, operation, values in with_values
        for name, value in parse_assignments(values, option).items()
    ]
    changes += [ConfigChange(name=name, operation=Operation.DELETE) for name in delete]
    if not changes:
        raise click.UsageError("nothing to change: pass --set, --delete, --append or --subtract")
    return changes


def config_change_options(function: Any) -> Any:
    """The options that ``parse_config_changes`` takes."""
    for name, metavar, text in (
        ("--subtract", "NAME=VALUE", "Take a value out of a list."),
        ("--append", "NAME=VALUE", "Add a value to a list."),
        ("--delete", "NAME", "Go back to the default."),
        ("--set", "NAME=VALUE", "Set a value."),
    ):
        parameter = "set_" if name == "--set" else name.removeprefix("--")
        function = click.option(name, parameter, multiple=True, metavar=metavar, help=text)(function)
    return function
