"""Forms of arguments that several commands take, parsed into values or refused with click's usage error."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click

from oncelog.clients.admin.configs import ConfigChange, Operation

_CHANGE_OPTIONS: Final = (
    (("--set", "-c"), "set_", "NAME=VALUE", "Set a value; repeatable, as the following."),
    (("--delete",), "delete", "NAME", "Remove a value, so that the default applies again."),
    (("--append",), "append", "NAME=VALUE", "Append a value to a list."),
    (("--subtract",), "subtract", "NAME=VALUE", "Remove a value from a list."),
)
"""Names of the option, parameter, form of the value and help, in the order of ``parse_config_changes``."""


def parse_assignments(values: Iterable[str], option: str) -> dict[str, str]:
    """Return the values by name. Each argument is ``name=value``; raises ``click.BadParameter`` for others."""
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
    """Return the changes of ``--set``, ``--delete``, ``--append`` and ``--subtract``; at least one is required."""
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


def config_change_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``parse_config_changes``, and its function their result as ``changes``."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        values = (kwargs.pop(parameter) for _, parameter, _, _ in _CHANGE_OPTIONS)
        function(*args, changes=parse_config_changes(*values), **kwargs)

    for options, parameter, metavar, text in reversed(_CHANGE_OPTIONS):
        command = click.option(*options, parameter, multiple=True, metavar=metavar, help=text)(command)
    return command
