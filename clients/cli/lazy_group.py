"""Command groups that import their commands when these are used, so that none pays for what another needs.

Their help has the whole first sentence of each command: click cuts it where the line ends.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

NO_LIMIT: Final = 10_000
"""Characters of a short help that is not to be cut."""


class UnknownCommand(click.UsageError):
    """The group has no command of that name."""

    def __init__(self, group: click.Group, name: str, context: click.Context) -> None:
        super().__init__(f"No such command {name!r}.", ctx=context)
        self.group = group
        self.name = name


class LazyGroup(click.Group):
    """A group with a table of where its commands are: from a name to "module:attribute"."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def add_lazy(self, name: str, place: str) -> None:
        """Add a command of another package."""
        self._lazy[name] = place

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), place
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is about to run. Raises ``UnknownCommand``, which names no other command."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise UnknownCommand(self, name, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(NO_LIMIT)) for name, command in commands if command is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
