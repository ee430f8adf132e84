"""``oncelog config``: configurations of topics and brokers."""

import click

from clients.admin.configs import (
    ConfigSource,
    Resource,
    ResourceType,
    alter_configs,
    describe_config,
)
from clients.cli.arguments import config_change_options, parse_config_changes
from clients.cli.session import Session, example, with_session

_resource_type = click.argument("resource_type", type=click.Choice(["topic", "broker"]), metavar="topic|broker")
_resource_name = click.argument("name", metavar="NAME")


def _resource(resource_type: str, name: str) -> Resource:
    if resource_type == "broker" and not name.isdecimal():
        raise click.BadParameter(f"{name!r} is not a broker's id", param_hint="NAME")
    return Resource(type=ResourceType[resource_type.upper()], name=name)


@click.group()
def config() -> None:
    """Configurations of topics and brokers."""


@config.command(epilog=example("oncelog config describe topic orders", "oncelog config describe broker 1 --all"))
@_resource_type
@_resource_name
@click.option("--key", "-k", "keys", multiple=True, metavar="NAME", help="Only this setting.")
@click.option("--all", "show_all", is_flag=True, help="Show defaults, too.")
@click.option("--docs", is_flag=True, help="Show what each setting means.")
@with_session()
def describe(
    session: Session, resource_type: str, name: str, keys: tuple[str, ...], show_all: bool, docs: bool
) -> None:
    """Show settings and where each value comes from."""
    resource = _resource(resource_type, name)
    entries = session.run(lambda cluster: describe_config(cluster, resource, keys or None, documentation=docs))
    rows = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source.name,
            "read_only": entry.is_read_only,
            **({"documentation": entry.documentation} if docs else {}),
        }
        for entry in entries
        if show_all or keys or entry.source is not ConfigSource.DEFAULT_CONFIG
    ]
    session.show_rows(rows, ["name", "value", "source", *(["documentation"] if docs else [])])


@config.command(
    epilog=example(
        "oncelog config alter topic orders --set retention.ms=3600000 --delete segment.bytes",
        "oncelog config alter topic orders --append cleanup.policy=compact",
    )
)
@_resource_type
@_resource_name
@config_change_options
@click.option("--validate-only", is_flag=True, help="Ask whether it would be accepted, and change nothing.")
@with_session()
def alter(
    session: Session,
    resource_type: str,
    name: str,
    set_: tuple[str, ...],
    delete: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    validate_only: bool,
) -> None:
    """Change settings, all of them or none."""
    changes = {_resource(resource_type, name): parse_config_changes(set_, delete, append, subtract)}
    outcomes = session.change(lambda cluster: alter_configs(cluster, changes, validate_only=validate_only))
    session.show_outcomes("config", "valid" if validate_only else "ok", outcomes)
