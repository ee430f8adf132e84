"""The commands that talk to a cluster: ``oncelog topic list`` and its siblings.

``commands`` names each with the place of its click object, "module:attribute". A ``LazyGroup`` imports that module when
the command is used, so that none pays for what another needs. ``oncelog`` is assembled elsewhere, from these and those
that run or inspect a broker.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

commands: Final[Mapping[str, str]] = {
    "config": "clients.cli.config:config",
    "consume": "clients.cli.consume:consume",
    "group": "clients.cli.group:group",
    "health": "clients.cli.health:health",
    "produce": "clients.cli.produce:produce",
    "topic": "clients.cli.topic:topic",
    "txn": "clients.cli.txn:txn",
    "version": "clients.cli.version:version",
    "wait": "clients.cli.health:wait",
}


class LazyGroup(click.Group):
    """A group that imports its commands when they are used. ``lazy`` is a table like ``commands``."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), place
        return command
