"""``oncelog group``: consumer groups and their offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from oncelog.clients.admin.group_offsets import CommittedOffset, commit_offsets, committed_offsets, delete_offsets
from oncelog.clients.admin.groups import (
    GroupDescription,
    MemberToRemove,
    delete_groups,
    describe_group,
    list_groups,
    remove_all_members,
    remove_members,
)
from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.cli.hidden_names import may_hide_groups
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.session import Session, complain, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer.positions import (
    BEGINNING,
    END,
    Position,
    PositionKind,
    parse_position,
    resolve_position,
)
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition


@click.group(cls=LazyGroup)
def group() -> None:
    """List and describe consumer groups, move and delete their offsets, remove members."""


@group.command("list", epilog=example("oncelog group list --state Stable"))
@click.option(
    "--state",
    "-s",
    "states",
    multiple=True,
    help="List only groups in this state, such as Stable or Empty; repeatable.",
)
@with_session()
def list_command(session: Session, states: tuple[str, ...]) -> None:
    """List the groups of all brokers."""
    rows = [
        {
            "group": found.group_id,
            "state": found.state,
            "protocol_type": found.protocol_type,
            "coordinator": found.coordinator,
        }
        for found in session.run(lambda cluster: list_groups(cluster, states))
    ]
    none = f"No groups in state {', '.join(states)}." if states else "No groups."
    if not rows and session.run(may_hide_groups):
        none = f"{none.removesuffix('.')} that this client may describe."
    session.show_rows(rows, ("group", "state", "protocol_type", "coordinator"), none=none)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupProgress:
    """A group, its committed offsets, and the end offsets of their partitions."""

    description: GroupDescription
    committed: dict[TopicPartition, CommittedOffset]
    ends: dict[TopicPartition, int | None]

    def rows(self) -> list[dict[str, Any]]:
        owners = {tp: member for member in self.description.members for tp in member.partitions}
        rows = []
        for tp in sorted({*self.committed, *owners}):
            committed = self.committed[tp].offset if tp in self.committed else None
            end, owner = self.ends.get(tp), owners.get(tp)
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "committed": committed,
                    "end": end,
                    "lag": None if end is None or committed is None else max(0, end - committed),
                    "member_id": owner.member_id if owner else None,
                    "instance_id": owner.group_instance_id if owner else None,
                    "client_id": owner.client_id if owner else None,
                    "host": owner.client_host if owner else None,
                }
            )
        return rows


async def _progress(cluster: Cluster, group_id: str) -> _GroupProgress:
    description = await describe_group(cluster, group_id)
    committed = await committed_offsets(cluster, group_id)
    partitions = {*committed, *(tp for member in description.members for tp in member.partitions)}
    ends = (await list_offsets(cluster, dict.fromkeys(partitions, LATEST))).found
    return _GroupProgress(
        description=description, committed=committed, ends={tp: found.offset for tp, found in ends.items()}
    )


@group.command(epilog=example("oncelog group describe billing"))
@click.argument("group_id", metavar="GROUP")
@with_session()
def describe(session: Session, group_id: str) -> None:
    """Show a group's members, committed offsets and lag."""
    progress = session.run(lambda cluster: _progress(cluster, group_id))
    rows = progress.rows()
    description = progress.description
    fields = {
        "group": description.group_id,
        "state": description.state,
        "assignor": description.assignor or None,
        "members": len(description.members),
        "lag": sum(row["lag"] or 0 for row in rows),
    }
    columns = ("topic", "partition", "committed", "end", "lag", "client_id", "host", "member_id")
    session.show_record(fields, "partitions", rows, columns)


@group.command(epilog=example("oncelog group delete billing"))
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP…")
@with_session()
def delete(session: Session, group_ids: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their offsets."""
    session.show_outcomes("group", "ok", session.run(lambda cluster: delete_groups(cluster, group_ids)))


@group.command(
    "remove-members",
    epilog=example(
        "oncelog group remove-members billing --instance-id shelf-1",
        "oncelog group remove-members billing --all --reason 'moving to another host'",
    ),
)
@click.argument("group_id", metavar="GROUP")
@click.option(
    "--instance-id",
    "-i",
    "instance_ids",
    multiple=True,
    metavar="ID",
    help="Group instance id of a static member; repeatable.",
)
@click.option(
    "--member-id",
    "-m",
    "member_ids",
    multiple=True,
    metavar="ID",
    help="Member id, as `describe` prints it; repeatable.",
)
@click.option("--all", "everybody", is_flag=True, help="All current members.")
@click.option("--reason", metavar="TEXT", help="Reason, for the coordinator's log.")
@with_session()
def remove_members_command(
    session: Session,
    group_id: str,
    instance_ids: tuple[str, ...],
    member_ids: tuple[str, ...],
    everybody: bool,
    reason: str | None,
) -> None:
    """Remove members from a group. A member that still runs joins again."""
    members = [MemberToRemove(group_instance_id=each) for each in instance_ids]
    members += [MemberToRemove(member_id=each) for each in member_ids]
    if bool(members) == everybody:
        raise click.UsageError("name the members: --instance-id and --member-id, or --all")

    async def work(cluster: Cluster) -> dict[MemberToRemove, Refusal | None]:
        if everybody:
            return await remove_all_members(cluster, group_id, reason=reason)
        return await remove_members(cluster, group_id, members, reason=reason)

    session.show_outcomes("member", "removed", session.run(work), none=f"Group {group_id} has no members.")


def _parse_partitions(values: Sequence[str]) -> dict[str, list[int]]:
    """Return partitions by topic, of arguments ``topic`` or ``topic:0,1``; no partitions means all."""
    parsed: dict[str, list[int]] = {}
    for value in values:
        topic, _, indexes = value.partition(":")
        numbers = indexes.split(",") if indexes else []
        if not topic or not all(number.isdecimal() for number in numbers):
            raise click.BadParameter(f"{value!r} is not TOPIC or TOPIC:PARTITION,…", param_hint="--topic")
        parsed.setdefault(topic, []).extend(map(int, numbers))
    return parsed


async def _choose(
    cluster: Cluster, wanted: Mapping[str, list[int]], committed: Mapping[TopicPartition, CommittedOffset]
) -> list[TopicPartition]:
    """Return the named partitions, or else those for which the group has offsets."""
    if not wanted:
        return sorted(committed)
    return await find_partitions(cluster, wanted)


_topics_option = click.option(
    "--topic", "-t", "topics", multiple=True, metavar="TOPIC[:PARTITION,…]", help="Only these partitions; repeatable."
)


@group.command(
    epilog=example(
        "oncelog group seek billing --to beginning",
        "oncelog group seek billing --to @2024-06-10T08:00:00+00:00 -t orders:0,1 --dry-run",
    )
)
@click.argument("group_id", metavar="GROUP")
@click.option(
    "--to",
    required=True,
    metavar="POSITION",
    help="New position: beginning, end, OFFSET, -N (N offsets before the end), or @TIME. Instead of an OFFSET outside "
    "of a partition's log its beginning or end is taken, with a warning.",
)
@_topics_option
@click.option("--dry-run", is_flag=True, help="Print what would be committed, without committing.")
@with_session()
def seek(session: Session, group_id: str, to: str, topics: tuple[str, ...], dry_run: bool) -> None:
    """Move the committed offsets of a group that has no members."""
    try:
        position = parse_position(to)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None
    wanted = _parse_partitions(topics)
    rows, refusals = session.run(lambda cluster: _seek(cluster, group_id, position, wanted, dry_run))
    session.show_rows(rows, ("topic", "partition", "prior", "committed"), none="No offsets were moved.")
    if refusals:
        session.fail(refusals)


async def _seek(
    cluster: Cluster, group_id: str, position: Position, wanted: Mapping[str, list[int]], dry_run: bool
) -> tuple[list[dict[str, Any]], dict[str, Refusal]]:
    prior = await committed_offsets(cluster, group_id)
    chosen = await _choose(cluster, wanted, prior)
    if not chosen:
        raise BrokerRefused(
            f"group {group_id}", Refusal(error=ErrorCode.GROUP_ID_NOT_FOUND, message="it has no offsets: pass --topic")
        )
    offsets = await resolve_position(cluster, chosen, position)
    if position.kind is PositionKind.OFFSET:
        offsets = await _within_logs(cluster, offsets)
    outcomes = {} if dry_run else await commit_offsets(cluster, group_id, offsets)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "prior": prior[tp].offset if tp in prior else None,
            "committed": offset,
        }
        for tp, offset in sorted(offsets.items())
        if outcomes.get(tp) is None
    ]
    return rows, {str(tp): refused for tp, refused in outcomes.items() if refused is not None}


async def _within_logs(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the nearest offsets that the logs have, and warn of each that differs from the one wanted."""
    begins = await resolve_position(cluster, wanted.keys(), BEGINNING)
    ends = await resolve_position(cluster, wanted.keys(), END)
    found = {tp: min(max(offset, begins[tp]), ends[tp]) for tp, offset in wanted.items()}
    for tp, offset in sorted(wanted.items()):
        if found[tp] < offset:
            complain(f"Warning: {tp}: offset {offset} is beyond the end of the log: {found[tp]} is used, its end")
        elif found[tp] > offset:
            complain(f"Warning: {tp}: offset {offset} is before the log begins: {found[tp]} is used, its beginning")
    return found


@group.command("offset-delete", epilog=example("oncelog group offset-delete billing -t orders"))
@click.argument("group_id", metavar="GROUP")
@_topics_option
@with_session()
def offset_delete(session: Session, group_id: str, topics: tuple[str, ...]) -> None:
    """Delete committed offsets of topics to which no member subscribes."""
    wanted = _parse_partitions(topics)
    if not wanted:
        raise click.UsageError("name the partitions: --topic TOPIC[:PARTITION,…]")

    async def work(cluster: Cluster) -> dict[TopicPartition, Refusal | None]:
        committed = await committed_offsets(cluster, group_id)
        if not committed:
            missing = Refusal(error=ErrorCode.GROUP_ID_NOT_FOUND, message="it has no committed offsets")
            raise BrokerRefused(f"group {group_id}", missing)
        chosen = [
            tp
            for tp in sorted(committed)
            if tp.topic in wanted and tp.partition in (wanted[tp.topic] or [tp.partition])
        ]
        return await delete_offsets(cluster, group_id, chosen) if chosen else {}

    none = f"Group {group_id} has no committed offsets of these partitions."
    session.show_outcomes("partition", "deleted", session.run(work), none=none)
