"""The command ``oncelog``: the clients' commands, and those that run a broker or read its files.

Commands are imported when they are called, so that each starts as fast as what it needs: ``oncelog topic list`` never
loads the broker. Here, and nowhere else, the broker knows the clients' command line.
"""

import gc
import sys
from collections.abc import Sequence
from copy import copy
from typing import Any

import click

from oncelog.clients import VERSION
from oncelog.clients.cli.commands import commands as client_commands
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.missing_package import missing_package_explained
from oncelog.clients.cli.standard_streams import accept_any_text, decode_arguments
from oncelog.clients.cli.suggestions import suggesting


class _Commands(LazyGroup):
    """The broker's commands, then the clients'. The error for a mistyped command suggests the nearest one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        typed = list(args)
        with suggesting(self, typed):
            context = super().make_context(info_name, args, parent, **extra)
        context.obj = typed
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with suggesting(self, ctx.obj):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *client_commands.list_commands(ctx)})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is about to run, whose module is loaded by that."""
        if args[:1] == ["serve"]:
            gc.disable()  # Until the broker has started: a sixth of the start would go into collecting nothing.
            ctx.call_on_close(gc.enable)  # Also where it does not start.
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name) or client_commands.get_command(ctx, cmd_name)
        if cmd_name == "txn" and isinstance(command, click.Group):
            command = copy(command)  # The clients' own group stays as it is.
            command.commands = {**command.commands, "states": txn_states}
        return command


@click.command("states", short_help="Print the transaction state machine.")
def txn_states() -> None:
    """Print the transaction coordinator's state machine, from the code that runs it."""
    from oncelog.broker.tools.txn_states import main as print_states

    print_states()


@click.group(
    cls=_Commands,
    lazy={
        "audit": "oncelog.broker.security.audit_command:command",
        "cluster": "oncelog.broker.local_cluster.command:cluster",
        "dump-log": "oncelog.broker.tools.dump_log:command",
        "serve": "oncelog.broker.serve:command",
        "znodes": "oncelog.broker.metadata.znodes_command:command",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(VERSION, "--version", "-V", prog_name="oncelog", message="%(prog)s %(version)s")
def cli() -> None:
    """A Kafka-compatible broker that keeps exactly-once, and its clients."""  # noqa: D401


def main(arguments: Sequence[str] | None = None) -> Any:
    accept_any_text()
    try:
        decoded = decode_arguments(sys.argv[1:] if arguments is None else arguments)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    with missing_package_explained():
        return cli.main(decoded, prog_name="oncelog")


if __name__ == "__main__":
    main()
