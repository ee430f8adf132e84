"""``oncelog acl``: the access control lists by which brokers with an authorizer decide."""

import functools
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final

import click

from oncelog.clients.admin.acls import create_acls, delete_acls, describe_acls
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.output import Row
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    OPERATIONS_ON,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

_COLUMNS: Final = ("permission", "principal", "host", "operation", "type", "pattern", "name")
_NONE: Final = "There are no such access control lists."
_RESOURCES: Final = (
    ("topic", AclResourceType.TOPIC, "NAME", "A topic, or with --prefixed those whose name begins so; * for all."),
    ("group", AclResourceType.GROUP, "ID", "A consumer group, or several, as with --topic."),
    ("transactional_id", AclResourceType.TRANSACTIONAL_ID, "ID", "A transactional id, or several, as with --topic."),
    ("delegation_token", AclResourceType.DELEGATION_TOKEN, "ID", "A delegation token, or several, as with --topic."),
    ("user", AclResourceType.USER, "TYPE:NAME", "The user whose tokens are created and described, such as User:bob."),
)
"""Parameter, type, form of the value and help of the options that name a resource, beside --cluster."""


class _Operation(click.Choice[str]):
    """An operation by its name."""

    name = "operation"

    def __init__(self) -> None:
        super().__init__([_spelled(each) for each in OPERATIONS], case_sensitive=False)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, AclOperation):
            return value
        text = str(value).replace("_", "-")
        return AclOperation[super().convert(text, parameter, context).upper().replace("-", "_")]


def _principal(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not all(value.partition(":")):
        raise click.BadParameter(f"{value!r} is not of the form User:name")
    return value


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Accept an address or ``*``: an entry with anything else is about no client, and a denial would deny nothing."""
    if value is None or value == WILDCARD:
        return value
    try:
        return str(ip_address(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no IP address; ranges and names of hosts have no effect") from None


def _require_effect(kind: AclResourceType, operations: Sequence[AclOperation]) -> None:
    """Refuse operations by which nothing is decided about a resource of this type."""
    possible = (AclOperation.ALL, *OPERATIONS_ON[kind])
    for operation in operations:
        if operation not in possible:
            raise click.UsageError(
                f"{_spelled(operation)} has no effect on a {kind.name.lower().replace('_', ' ')}: "
                f"possible are {', '.join(map(_spelled, possible))}"
            )


def _spelled(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def _resource_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a resource, and its function the ``pattern``: None without any."""

    @functools.wraps(function)
    def command(*args: Any, is_cluster: bool, is_prefixed: bool, **kwargs: Any) -> None:
        named = [
            ResourcePattern(kind, name, PatternType.PREFIXED if is_prefixed else PatternType.LITERAL)
            for parameter, kind, _, _ in _RESOURCES
            if (name := kwargs.pop(parameter)) is not None
        ]
        if is_cluster:
            named.append(ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME))
        if len(named) > 1:
            raise click.UsageError("name one resource: a topic, a group, the cluster, …")
        if is_prefixed and (not named or is_cluster):
            raise click.UsageError("--prefixed belongs to a name, such as that of a topic")
        function(*args, pattern=named[0] if named else None, **kwargs)

    command = click.option("--prefixed", "is_prefixed", is_flag=True, help="The name is the beginning of names.")(
        command
    )
    command = click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself.")(command)
    for parameter, _, metavar, text in reversed(_RESOURCES):
        command = click.option(f"--{parameter.replace('_', '-')}", parameter, metavar=metavar, help=text)(command)
    return command


@click.group(cls=LazyGroup)
def acl() -> None:
    """List, add and remove access control lists.

    They decide on brokers with authorizer.class.name; super.users may do everything without them.
    """


@acl.command(
    "list",
    epilog=example("oncelog acl list", "oncelog acl list --principal User:alice", "oncelog acl list --topic orders"),
)
@_resource_options
@click.option("--principal", callback=_principal, metavar="TYPE:NAME", help="Only those of one principal.")
@with_session()
def list_command(session: Session, pattern: ResourcePattern | None, principal: str | None) -> None:
    """List access control lists: all, or those that decide about one resource or are of one principal.

    Those that decide about a resource are also those of * and of beginnings of its name; with --prefixed, only those of
    this beginning itself.
    """
    wanted = AclBindingFilter(principal=principal)
    if pattern is not None:
        is_prefixed = pattern.pattern_type is PatternType.PREFIXED
        wanted = AclBindingFilter(
            resource_type=pattern.resource_type,
            name=pattern.name,
            pattern_type=PatternType.PREFIXED if is_prefixed else PatternType.MATCH,
            principal=principal,
        )
    session.show_rows(map(_row, session.run(lambda cluster: describe_acls(cluster, wanted))), _COLUMNS, none=_NONE)


@acl.command(
    epilog=example(
        "oncelog acl add User:alice read describe --topic orders",
        "oncelog acl add User:alice write --topic orders. --prefixed",
        "oncelog acl add User:bob all --topic '*' --deny --host 10.0.0.7",
    )
)
@click.argument("principal", callback=_principal, metavar="TYPE:NAME")
@click.argument("operations", type=_Operation(), nargs=-1, required=True, metavar="OPERATION…")
@_resource_options
@click.option(
    "--host", default="*", show_default=True, callback=_address, metavar="ADDRESS", help="IP address of the client."
)
@click.option("--deny", "is_denied", is_flag=True, help="Deny the operations, whatever else allows them.")
@with_session()
def add(
    session: Session,
    principal: str,
    operations: Sequence[AclOperation],
    pattern: ResourcePattern | None,
    host: str,
    is_denied: bool,
) -> None:
    """Allow a principal operations on a resource, or deny them. User:* is everyone.

    Operations: all, read, write, create, delete, alter, describe, cluster-action, describe-configs, alter-configs,
    idempotent-write, create-tokens, describe-tokens, two-phase-commit. A client that may read, write, delete or alter
    may also describe.
    """
    permission = AclPermissionType.DENY if is_denied else AclPermissionType.ALLOW
    pattern = _required(pattern)
    _require_effect(pattern.resource_type, operations)
    bindings = [
        AclBinding(pattern, AccessControlEntry(principal, host, operation, permission)) for operation in operations
    ]
    outcomes = session.change(lambda cluster: create_acls(cluster, bindings))
    session.show_outcomes("acl", "added", {_text(binding): refused for binding, refused in outcomes.items()})


@acl.command(
    epilog=example(
        "oncelog acl remove User:alice read --topic orders",
        "oncelog acl remove User:alice --topic orders. --prefixed",
        "oncelog acl remove User:alice --everywhere",
    )
)
@click.argument("principal", callback=_principal, metavar="TYPE:NAME")
@click.argument("operations", type=_Operation(), nargs=-1, metavar="[OPERATION…]")
@_resource_options
@click.option("--everywhere", is_flag=True, help="On every resource, instead of one.")
@click.option("--host", metavar="ADDRESS", help="Only for this address of the client.")
@click.option("--deny", "is_denied", is_flag=True, help="Remove what denies, and not what allows.")
@with_session()
def remove(
    session: Session,
    principal: str,
    operations: Sequence[AclOperation],
    pattern: ResourcePattern | None,
    everywhere: bool,
    host: str | None,
    is_denied: bool,
) -> None:
    """Remove what a principal is allowed on a resource, or with --deny what it is denied: the operations, or all.

    --everywhere removes both, unless --deny is given. Only what was added with the same name and principal is removed:
    other lists may still allow the operations.
    """
    if everywhere == (pattern is not None):
        raise click.UsageError("name a resource, or pass --everywhere")
    kind, name, pattern_type = pattern or (AclResourceType.ANY, None, PatternType.ANY)
    permission = AclPermissionType.ANY if everywhere else AclPermissionType.ALLOW
    permission = AclPermissionType.DENY if is_denied else permission
    filters = [
        AclBindingFilter(kind, name, pattern_type, principal, host, operation, permission)
        for operation in operations or (AclOperation.ANY,)
    ]
    removed, refusals = session.change(lambda cluster: _remove(cluster, filters))
    session.show_rows([{**_row(binding), "result": "removed"} for binding in removed], _COLUMNS, none=_NONE)
    session.fail_if_any(refusals)


async def _remove(cluster: Cluster, filters: Sequence[AclBindingFilter]) -> tuple[list[AclBinding], dict[str, Refusal]]:
    results = await delete_acls(cluster, filters)
    removed = {each: None for result in results.values() if not isinstance(result, Refusal) for each in result}
    refusals = {
        f"acl {each.principal} {each.operation.name}": result
        for each, result in results.items()
        if isinstance(result, Refusal)
    }
    return list(removed), refusals


def _required(pattern: ResourcePattern | None) -> ResourcePattern:
    if pattern is None:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    return pattern


def _row(binding: AclBinding) -> Row:
    pattern, entry = binding
    return {
        "permission": entry.permission_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "type": pattern.resource_type.name,
        "pattern": pattern.pattern_type.name,
        "name": pattern.name,
    }


def _text(binding: AclBinding) -> str:
    pattern, entry = binding
    beginning = "PREFIXED " if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{entry.permission_type.name} {entry.principal} {entry.operation.name} from {entry.host} on "
        f"{beginning}{pattern.resource_type.name} {pattern.name}"
    )
