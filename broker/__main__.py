"""The command ``oncelog``: ``serve`` runs a broker here; everything else is a client, and never loads the broker.

Subcommands are imported when they are called, so that each starts as fast as what it needs.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

_LAZY: Final = {
    "serve": ("broker.serve", "Run a broker."),
    "dump-log": ("broker.tools.dump_log", "Print the files of a data directory."),
}
"""Our own subcommands: module and help. Each module has a click command called ``command``."""
_CLIENT_COMMANDS: Final = "clients.cli.commands"
"""The module whose ``commands`` is the click group of all client subcommands."""


class _LazyGroup(click.Group):
    """Finds a subcommand by importing the module that has it, and nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_LAZY, *_client_group().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LAZY:
            command: click.Command = import_module(_LAZY[cmd_name][0]).command
            return command
        found = _client_group().get_command(ctx, cmd_name)
        if cmd_name == "txn":
            assert isinstance(found, click.Group)
            found.add_command(txn_states)
        return found


@click.command("states", epilog="\b\nExample:\n  oncelog txn states")
def txn_states() -> None:
    """Print the state machine of transactions, from the coordinator's own code."""
    import_module("broker.tools.txn_states").main()


def _client_group() -> click.Group:
    group: click.Group = import_module(_CLIENT_COMMANDS).commands
    return group


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="oncelog")
def cli() -> None:
    """A Kafka-compatible broker that keeps exactly-once, and its clients."""


def main(arguments: Sequence[str] | None = None) -> Any:
    return cli.main(list(sys.argv[1:] if arguments is None else arguments), prog_name="oncelog")


if __name__ == "__main__":
    main()
