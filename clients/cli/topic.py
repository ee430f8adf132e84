"""``oncelog topic``: topics and their partitions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from oncelog.clients.admin.topics import (
    BROKER_DEFAULT,
    NewTopic,
    add_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_topics,
)
from oncelog.clients.cli.arguments import config_change_options, parse_assignments
from oncelog.clients.cli.hidden_names import may_hide_topics
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.remedies import MARKED_FOR_DELETION, remedy
from oncelog.clients.cli.session import Session, complain, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.printable import without_controls
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.clients.admin.configs import ConfigChange

_CREATE: Final = "`oncelog topic create NAME` creates one."


@click.group(cls=LazyGroup)
def topic() -> None:
    """List, create, describe, change and delete topics."""


@topic.command("list", epilog=example("oncelog topic list --internal"))
@click.option("--internal", is_flag=True, help="Include internal topics (groups and transactions).")
@with_session()
def list_command(session: Session, internal: bool) -> None:
    """List topics."""
    topics = session.run(list_topics)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
            "topic_id": topic.topic_id,
        }
        for topic in topics
        if internal or not topic.is_internal
    ]
    if not topics and session.run(may_hide_topics):
        session.show_rows([], (), none="No topics that this client may describe.")
        return
    none = "No topics." if not topics else "No topics, except internal ones: --internal shows these, too."
    session.show_rows(rows, ("topic", "partitions", "replication_factor"), none=f"{none} {_CREATE}")


@topic.command(epilog=example("oncelog topic create orders -p 3 -r 1 -c retention.ms=86400000"))
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(min=1),
    default=None,
    help="Number of partitions. Default: num.partitions of the brokers.",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(min=1),
    default=None,
    help="Replicas of each partition. Default: default.replication.factor of the brokers.",
)
@click.option(
    "--config", "-c", "configs", multiple=True, metavar="NAME=VALUE", help="Setting of the topic; repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists.")
@click.option("--validate-only", is_flag=True, help="Validate the request without creating the topic.")
@with_session()
def create(
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
) -> None:
    """Create topics."""
    from oncelog.clients.cli.setting_warnings import warnings_of_creation

    settings = parse_assignments(configs, "--config")
    topics = [
        NewTopic(
            name=name,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=settings,
        )
        for name in names
    ]

    async def work(cluster: Cluster) -> tuple[dict[str, Refusal | None], list[str]]:
        outcomes = await create_topics(cluster, topics, validate_only=validate_only)
        accepted = [name for name, refused in outcomes.items() if refused is None]
        return outcomes, await warnings_of_creation(cluster, accepted, replication_factor, settings)

    outcomes, warnings = session.change(work)
    for warning in warnings:
        complain(f"Warning: {warning}")
    if if_not_exists:
        outcomes = {name: unless_it_exists(outcome) for name, outcome in outcomes.items()}
    session.show_outcomes("topic", "valid" if validate_only else "ok", outcomes)


def unless_it_exists(outcome: Refusal | None) -> Refusal | None:
    """Return no refusal of a topic that exists; one whose deletion has begun exists no more."""
    if outcome is None or MARKED_FOR_DELETION in (outcome.message or ""):
        return outcome
    return None if outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS else outcome


@topic.command(epilog=example("oncelog topic describe orders --offsets"))
@click.argument("name", metavar="TOPIC")
@click.option("--offsets", is_flag=True, help="Include the first and next offset of each partition.")
@with_session()
def describe(session: Session, name: str, offsets: bool) -> None:
    """Show a topic's partitions, their leaders and replicas.

    ISR: the in-sync replicas. ELR: other replicas that have every acknowledged record unless they turn out to be
    damaged, and may lead when none in sync is there (KIP-966). LAST-KNOWN-ELR: those that were eligible, and are known
    to be damaged. Below the table are the brokers that partitions without a leader wait for, and which partitions
    refuse writes with acks=all because fewer replicas are in sync than min.insync.replicas.
    """
    from oncelog.clients.cli.reassigned_partitions import about_reassignments
    from oncelog.clients.cli.seen_topic import see_topic
    from oncelog.clients.cli.topic_description import about_unreached, columns, partition_rows, problems

    seen = session.run(lambda cluster: see_topic(cluster, name, session.timeout_seconds, offsets=offsets))
    for tp, error in sorted(seen.without_end.items()):
        complain(f"Warning: {tp} has no known end: {error.name}", remedy(Refusal(error=error)))
    described = seen.description
    rows = partition_rows(described, seen.alive, seen.ends)
    found = problems(described, seen.alive, seen.elections)
    found += [seen.refusing] if seen.refusing else []
    found += about_unreached(described, seen.unreached)
    fields: dict[str, object] = {
        "topic": described.name,
        "topic_id": described.topic_id,
        "internal": described.is_internal,
        "replication_factor": described.replication_factor,
    }
    if session.output == "json":
        fields["problems"] = found
    session.show_record(fields, "partitions", rows, columns(rows, offsets=offsets))
    if session.output != "json":
        for problem in found:
            click.echo(without_controls(f"\nProblem: {problem}"))
        leaderless = [(name, each.partition) for each in described.partitions if each.leader is None]
        for move in about_reassignments(seen.moves, leaderless):
            click.echo(without_controls(f"\nNote: {move}"))


@topic.command(epilog=example("oncelog topic delete orders"))
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@with_session()
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Delete topics with all their records."""
    session.show_outcomes("topic", "ok", session.change(lambda cluster: delete_topics(cluster, names)))


@topic.command("alter-config", epilog=example("oncelog topic alter-config orders --set retention.ms=3600000"))
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@config_change_options
@click.option("--validate-only", is_flag=True, help="Validate the change without making it.")
@with_session()
def alter_config(
    session: Session, names: tuple[str, ...], changes: "Sequence[ConfigChange]", validate_only: bool
) -> None:
    """Change settings of topics."""
    from oncelog.clients.admin.configs import Resource, ResourceType, alter_configs
    from oncelog.clients.cli.setting_warnings import values_set, warnings_of_change

    resources = {Resource(type=ResourceType.TOPIC, name=name): changes for name in names}

    async def work(cluster: Cluster) -> tuple[dict[Resource, Refusal | None], list[str]]:
        outcomes = await alter_configs(cluster, resources, validate_only=validate_only)
        return outcomes, await warnings_of_change(cluster, names, values_set(changes))

    outcomes, warnings = session.change(work)
    for warning in warnings:
        complain(f"Warning: {warning}")
    done = "valid" if validate_only else "ok"
    session.show_outcomes("topic", done, {resource.name: outcome for resource, outcome in outcomes.items()})


@topic.command("add-partitions", epilog=example("oncelog topic add-partitions orders --num 2"))
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option("--num", "-n", type=click.IntRange(min=1), required=True, help="Partitions to add to each topic.")
@with_session()
def add_partitions_command(session: Session, names: tuple[str, ...], num: int) -> None:
    """Add partitions. Keys may then map to other partitions than before."""

    async def work(cluster: Cluster) -> dict[str, Refusal | None]:
        described = await describe_topics(cluster, names)
        totals = {
            name: len(topic.partitions) + num for name, topic in described.items() if not isinstance(topic, Refusal)
        }
        refused = {name: topic for name, topic in described.items() if isinstance(topic, Refusal)}
        return {**refused, **(await add_partitions(cluster, totals) if totals else {})}

    session.show_outcomes("topic", "ok", session.change(work))


@topic.command("trim-prefix", epilog=example("oncelog topic trim-prefix orders --before @2024-06-10T00:00:00+00:00"))
@click.argument("name", metavar="TOPIC")
@click.option(
    "--before",
    required=True,
    metavar="POSITION",
    help="First offset to keep: OFFSET, end, or @TIME (ISO 8601 or milliseconds).",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; repeatable. Default: all.",
)
@with_session()
def trim_prefix(session: Session, name: str, before: str, partitions: tuple[int, ...]) -> None:
    """Delete the records before an offset."""
    from oncelog.clients.consumer.positions import parse_position, resolve_position

    try:
        position = parse_position(before)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--before") from None

    async def work(cluster: Cluster) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
        chosen = await find_partitions(cluster, {name: partitions})
        deleted = await delete_records(cluster, await resolve_position(cluster, chosen, position))
        return deleted.found, deleted.failed

    found, failed = session.run(work)
    rows = [{"topic": tp.topic, "partition": tp.partition, "begin": begin} for tp, begin in sorted(found.items())]
    session.show_rows(rows, ("topic", "partition", "begin"), none="No partition was trimmed.")
    if failed:
        session.fail({str(topic_partition): Refusal(error=error) for topic_partition, error in failed.items()})
