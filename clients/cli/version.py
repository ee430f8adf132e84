"""``oncelog version``."""

import click

from oncelog.clients import VERSION


@click.command(epilog="\b\nExample:\n  oncelog version")
def version() -> None:
    """Print the version of this command."""
    click.echo(f"oncelog {VERSION}")
