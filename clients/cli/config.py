"""``oncelog config``: configurations of topics and brokers."""

import functools
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Any, Final

import click

from oncelog.clients.admin.configs import (
    ConfigChange,
    ConfigEntry,
    Resource,
    ResourceType,
    alter_configs,
    describe_config,
    describe_configs,
)
from oncelog.clients.admin.topics import list_topics
from oncelog.clients.cli.arguments import config_change_options
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.session import Session, complain, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.errors import ErrorCode

_ALL_BROKERS: Final = Resource(type=ResourceType.BROKER, name="")


def _resource_arguments(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments that name a resource, and its function the ``resource``."""

    @click.argument("resource_type", type=click.Choice(["topic", "broker"]), metavar="topic|broker")
    @click.argument("name", metavar="[NAME]", required=False)
    @click.option("--default", "is_default", is_flag=True, help="With `broker`: the settings of all brokers.")
    @functools.wraps(function)
    def command(*args: Any, resource_type: str, name: str | None, is_default: bool, **kwargs: Any) -> None:
        function(*args, resource=_resource(resource_type, name, is_default=is_default), **kwargs)

    return command


def _resource(resource_type: str, name: str | None, *, is_default: bool) -> Resource:
    if is_default:
        if resource_type != "broker" or name is not None:
            raise click.UsageError("--default belongs to `broker`, without an id: it stands for all brokers")
        return _ALL_BROKERS
    if name is None:
        raise click.UsageError(f"name the {resource_type}{', or pass --default' if resource_type == 'broker' else ''}")
    if resource_type == "broker" and not name.isdecimal():
        raise click.BadParameter(f"{name!r} is not a broker's id", param_hint="NAME")
    return Resource(type=ResourceType[resource_type.upper()], name=name)


@click.group(cls=LazyGroup)
def config() -> None:
    """List, describe and change settings of topics and brokers."""


@config.command("list", epilog=example("oncelog config list", "oncelog config list --all"))
@click.option("--all", "show_all", is_flag=True, help="Include the settings of internal topics.")
@with_session()
def list_command(session: Session, show_all: bool) -> None:
    """List the settings that were changed at run time: of topics, of brokers and of all brokers."""
    described, internal = session.run(_describe_all)
    settings = [
        (resource, entry)
        for resource, entries in described.items()
        for entry in entries
        if entry.source is _own_source(resource)
    ]
    shown = [(resource, entry) for resource, entry in settings if show_all or resource not in internal]
    rows = [
        {
            "type": resource.type.name.lower(),
            "name": resource.name or "(all)",
            "setting": entry.name,
            "value": entry.value,
        }
        for resource, entry in shown
    ]
    session.show_rows(rows, ("type", "name", "setting", "value"), none="No topic or broker has settings of its own.")
    hidden = len(settings) - len(shown)
    if hidden and session.output != "json":
        click.echo(f"{hidden} setting{'s' if hidden > 1 else ''} of internal topics not shown: see --all", err=True)


def _own_source(resource: Resource) -> ConfigSource:
    """Return the source of values that were set for this resource at run time."""
    if resource.type is ResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    return ConfigSource.DYNAMIC_BROKER_CONFIG if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


async def _describe_all(cluster: Cluster) -> tuple[dict[Resource, list[ConfigEntry]], frozenset[Resource]]:
    """Return the entries of all resources, and which of these are internal topics."""
    listed = await list_topics(cluster)
    topics = [Resource(type=ResourceType.TOPIC, name=topic.name) for topic in listed]
    internal = frozenset(each for each, topic in zip(topics, listed, strict=True) if topic.is_internal)
    brokers = [Resource(type=ResourceType.BROKER, name=str(broker_id)) for broker_id in sorted(cluster.brokers)]
    described = await describe_configs(cluster, dict.fromkeys([_ALL_BROKERS, *brokers, *topics]))
    entries = {resource: _entries(resource, described[resource]) for resource in [_ALL_BROKERS, *brokers, *topics]}
    return entries, internal


def _entries(resource: Resource, described: list[ConfigEntry] | Refusal) -> list[ConfigEntry]:
    if isinstance(described, Refusal):
        raise described.as_error(str(resource))
    return described


@config.command(
    epilog=example(
        "oncelog config describe topic orders",
        "oncelog config describe broker 1 --all",
        "oncelog config describe broker --default",
    )
)
@_resource_arguments
@click.option("--key", "-k", "keys", multiple=True, metavar="NAME", help="Show only this setting; repeatable.")
@click.option("--all", "show_all", is_flag=True, help="Include settings that have their default.")
@click.option("--docs", is_flag=True, help="Include the meaning of each setting.")
@with_session()
def describe(session: Session, resource: Resource, keys: tuple[str, ...], show_all: bool, docs: bool) -> None:
    """Show settings that differ from the defaults, and where each value comes from."""
    entries = session.run(lambda cluster: _describe(cluster, resource, keys, documentation=docs))
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
    none = f"No settings of {resource} differ from the defaults."
    session.show_rows(rows, ["name", "value", "source", *(["documentation"] if docs else [])], none=none)
    hidden = len(entries) - len(rows)
    if hidden and session.output != "json":
        click.echo(
            f"{hidden} setting{'s have their defaults' if hidden > 1 else ' has its default'}: see --all", err=True
        )


async def _describe(
    cluster: Cluster, resource: Resource, keys: Collection[str], *, documentation: bool
) -> list[ConfigEntry]:
    """Return the settings named by ``keys``, or all. Raises ``BrokerRefused`` for a setting that does not exist."""
    entries = await describe_config(cluster, resource, documentation=documentation)
    names = [entry.name for entry in entries]
    for missing in sorted(set(keys).difference(names)):
        near = get_close_matches(missing, names, n=1, cutoff=0.75)
        unknown = Refusal(error=ErrorCode.INVALID_CONFIG, message=f"did you mean {near[0]}?" if near else None)
        raise BrokerRefused(f"{resource} has no setting {missing}", unknown)
    return [entry for entry in entries if not keys or entry.name in keys]


@config.command(
    epilog=example(
        "oncelog config alter topic orders --set retention.ms=3600000 --delete segment.bytes",
        "oncelog config alter topic orders --append cleanup.policy=compact",
        "oncelog config alter broker --default --set message.max.bytes=2097152",
    )
)
@_resource_arguments
@config_change_options
@click.option("--validate-only", is_flag=True, help="Validate the change without making it.")
@with_session()
def alter(session: Session, resource: Resource, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    """Change settings of a topic or broker: all of them or none."""
    from oncelog.clients.cli.setting_warnings import values_set, warnings_of_change

    async def work(cluster: Cluster) -> tuple[dict[Resource, Refusal | None], list[str]]:
        outcomes = await alter_configs(cluster, {resource: changes}, validate_only=validate_only)
        if resource.type is not ResourceType.TOPIC:
            return outcomes, []
        return outcomes, await warnings_of_change(cluster, [resource.name], values_set(changes))

    outcomes, warnings = session.change(work)
    for warning in warnings:
        complain(f"Warning: {warning}")
    session.show_outcomes("config", "valid" if validate_only else "ok", outcomes)
