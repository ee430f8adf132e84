"""``oncelog quota``: the limits of what users, client ids and IP addresses may use of brokers."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from oncelog.clients.admin.quotas import alter_client_quotas, describe_client_quotas
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.output import Row
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.client_quotas import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    DefaultName,
    EntityName,
    QuotaEntity,
    QuotaFilter,
    entities_of_client,
)

_COLUMNS: Final = ("user", "client", "ip", "limit", "value")
_NONE: Final = "There are no such quotas."
_PARTS: Final = (
    ("user", "NAME", "A user.", "Every user without a quota of its own."),
    ("client", "ID", "A client id; with --user, that of one user.", "Every client id without a quota of its own."),
    ("ip", "ADDRESS", "An IP address.", "Every IP address without a quota of its own."),
)
"""Option, form of its value, its help, and the help of the option for the default."""
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kMGT]i?)B?", re.IGNORECASE)
_PREFIXES: Final = " kmgt"


class _ByteRate(click.FloatRange):
    """A number of bytes: 500000, 500kB, 1MB, 2MiB."""

    name = "bytes"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a number of bytes, such as 500000, 500kB, 1MB or 2MiB", parameter, context)
        number, prefix = match.groups()
        factor = 1024 if prefix.lower().endswith("i") else 1000
        return float(int(float(number) * factor ** _PREFIXES.index(prefix[:1].lower() or " ")))


_BYTES: Final = _ByteRate()
_POSITIVE: Final = click.FloatRange(min=0, min_open=True)
_LIMITS: Final = (
    (PRODUCER_BYTE_RATE, _BYTES, "BYTES", "Bytes per second that are produced, to each broker: 500kB, 1MB, 2MiB."),
    (CONSUMER_BYTE_RATE, _BYTES, "BYTES", "Bytes per second that are fetched, from each broker."),
    (REQUEST_PERCENTAGE, _POSITIVE, "PERCENT", "Percent of the time of each broker's event loop."),
    (CONTROLLER_MUTATION_RATE, _POSITIVE, "RATE", "Partitions per second that are created or deleted."),
    (CONNECTION_CREATION_RATE, click.IntRange(min=1), "RATE", "Connections per second, to each broker; with --ip."),
)
"""Key, type, form of the value and help of the options that set limits."""


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _entity_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name an entity, and its function the ``entity``, which may have no part."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        names: list[EntityName | None] = []
        for part, _, _, _ in _PARTS:
            name, is_default = kwargs.pop(part), kwargs.pop(f"default_{part}")
            if name is not None and is_default:
                raise click.UsageError(f"pass --{part} or --default-{part}, not both")
            names.append(DEFAULT if is_default else name)
        entity = QuotaEntity(*names)
        if entity.ip is not None and len(entity.parts) > 1:
            raise click.UsageError("an IP address has quotas of its own: pass no user and no client with it")
        function(*args, entity=entity, **kwargs)

    for part, metavar, text, default_text in reversed(_PARTS):
        command = click.option(f"--default-{part}", is_flag=True, help=default_text)(command)
        command = click.option(f"--{part}", metavar=metavar, help=text)(command)
    return command


def _limit_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that set limits, and its function the ``limits``, at least one, by key."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        given = {key: kwargs.pop(key) for key, *_ in _LIMITS}
        limits = {key: value for key, value in given.items() if value is not None}
        if not limits:
            raise click.UsageError(f"nothing to set: pass {', '.join(_option(key) for key in given)}")
        function(*args, limits=limits, **kwargs)

    for key, kind, metavar, text in reversed(_LIMITS):
        command = click.option(_option(key), key, type=kind, metavar=metavar, help=text)(command)
    return command


def _named(entity: QuotaEntity) -> QuotaEntity:
    if not entity.parts:
        raise click.UsageError("name an entity: --user, --client, both, --ip, or one of --default-…")
    return entity


@click.group(cls=LazyGroup)
def quota() -> None:
    """List, set and remove limits of what clients may use.

    A client over its limit is not refused: its connections are read later.
    """


@quota.command(
    "list", epilog=example("oncelog quota list", "oncelog quota list --user alice", "oncelog quota list --default-ip")
)
@_entity_options
@with_session()
def list_command(session: Session, entity: QuotaEntity) -> None:
    """List the quotas that are set: all, or those of entities with these parts."""
    found = session.run(lambda cluster: describe_client_quotas(cluster, QuotaFilter(*entity)))
    ordered = sorted(found.items(), key=lambda item: str(item[0]))
    rows = [_row(each, key, value) for each, limits in ordered for key, value in limits.items()]
    session.show_rows(rows, _COLUMNS, none=_NONE)


@quota.command(
    epilog=example("oncelog quota describe --user alice --client etl", "oncelog quota describe --client etl")
)
@click.option("--user", default="ANONYMOUS", show_default=True, metavar="NAME", help="The user of the client.")
@click.option("--client", default="", metavar="ID", help="The client id of the client.")
@with_session()
def describe(session: Session, user: str, client: str) -> None:
    """Show which limits hold for a client, and what they are set for: of several, the most specific one holds."""
    found = session.run(describe_client_quotas)
    rows = []
    for key in CLIENT_KEYS:
        holding = next((each for each in entities_of_client(user, client) if key in found.get(each, {})), None)
        if holding is not None:
            rows.append({"limit": key, "value": _number(found[holding][key]), "set_for": str(holding)})
    session.show_rows(rows, ("limit", "value", "set_for"), none="No limit holds for this client.")


@quota.command(
    "set",
    epilog=example(
        "oncelog quota set --user alice --producer-byte-rate 1MB",
        "oncelog quota set --user alice --default-client --consumer-byte-rate 500kB",
        "oncelog quota set --default-user --request-percentage 25",
        "oncelog quota set --ip 10.0.0.7 --connection-creation-rate 20",
    ),
)
@_entity_options
@_limit_options
@with_session()
def set_command(session: Session, entity: QuotaEntity, limits: dict[str, float]) -> None:
    """Set limits of a user, a client id, both or an IP address; its other limits stay."""
    _alter(session, _named(entity), limits, "set")


@quota.command(
    epilog=example(
        "oncelog quota remove --user alice", "oncelog quota remove --default-user --limit request_percentage"
    )
)
@_entity_options
@click.option(
    "--limit",
    "keys",
    type=click.Choice([key for key, *_ in _LIMITS]),
    multiple=True,
    help="Remove this limit; repeatable. Default: all limits of the entity.",
)
@with_session()
def remove(session: Session, entity: QuotaEntity, keys: tuple[str, ...]) -> None:
    """Remove limits of a user, a client id, both or an IP address."""
    wanted = keys or (CLIENT_KEYS if _named(entity).ip is None else IP_KEYS)
    _alter(session, _named(entity), dict.fromkeys(wanted), "removed")


def _alter(session: Session, entity: QuotaEntity, limits: Mapping[str, float | None], done: str) -> None:
    async def alter(cluster: Cluster) -> dict[QuotaEntity, Refusal | None]:
        return await alter_client_quotas(cluster, {entity: limits})

    outcomes = session.change(alter)
    session.show_outcomes("quota", done, {str(each): refused for each, refused in outcomes.items()})


def _row(entity: QuotaEntity, key: str, value: float) -> Row:
    parts: Iterable[EntityName | None] = entity
    names = ["(default)" if isinstance(part, DefaultName) else part for part in parts]
    return dict(zip(_COLUMNS, [*names, key, _number(value)], strict=True))


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
