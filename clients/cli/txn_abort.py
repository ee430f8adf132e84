"""``oncelog txn abort``: end a transaction that a partition has open, and verify that it is over everywhere."""

from collections.abc import Sequence
from typing import Any

import click

from oncelog.clients.admin.abort_verification import Check, verify_abort
from oncelog.clients.admin.transaction_abort import (
    AbortPlan,
    WhichTransaction,
    carry_out_abort,
    find_open_transaction,
    prepare_abort,
)
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.output import format_fields, format_json, format_table
from oncelog.clients.cli.session import REFUSED, Session, example, with_session
from oncelog.clients.cluster import Cluster


@click.command(
    epilog=example(
        "oncelog txn abort --topic orders --partition 0 --start-offset 1042 --dry-run",
        "oncelog txn abort --topic orders --partition 0 --start-offset 1042",
        "oncelog txn abort --topic orders --partition 0 --producer-id 4000",
    )
)
@click.option("--topic", "-t", required=True, metavar="TOPIC", help="Topic in which the transaction is open.")
@click.option("--partition", "-p", required=True, type=click.IntRange(min=0), help="Partition in which it is open.")
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="First offset of the transaction, as `oncelog txn find-hanging` prints it.",
)
@click.option(
    "--producer-id",
    type=click.IntRange(min=0),
    help="Its producer id, instead of --start-offset.",
)
@click.option("--producer-epoch", type=click.IntRange(min=0), help="Abort only if the producer has this epoch.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(min=-1),
    help="Abort only if its last marker has this epoch.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, without doing it.")
@with_session()
def abort(session: Session, /, topic: str, partition: int, dry_run: bool, **given: int | None) -> None:
    """Abort a transaction: through its coordinator if that has it, else by a marker in the partition.

    If its coordinator has the transaction, the producer is fenced, and the transaction is aborted on all partitions and
    in all groups. If no coordinator has it, the transaction hangs, and an abort marker is written to this partition.
    """
    which = WhichTransaction(**given)
    if which.start_offset is None and which.producer_id is None:
        raise click.UsageError("name the transaction: --start-offset or --producer-id")

    async def prepare(cluster: Cluster) -> AbortPlan:
        (named,) = await find_partitions(cluster, {topic: [partition]})
        return await prepare_abort(cluster, await find_open_transaction(cluster, named, which))

    async def carry_out(cluster: Cluster) -> tuple[Check, ...]:
        await carry_out_abort(cluster, plan)
        return await verify_abort(cluster, plan)

    plan = session.run(prepare)
    if session.output != "json":
        click.echo(format_fields(_fields(plan)))
    checks = None if dry_run else session.run(carry_out)
    _show_checks(session, plan, checks)
    if not all(check.agrees for check in checks or ()):
        raise click.exceptions.Exit(REFUSED)


def _show_checks(session: Session, plan: AbortPlan, checks: Sequence[Check] | None) -> None:
    """Print the outcome; ``checks`` is None if nothing was done."""
    rows = [{"subject": check.subject, "agrees": check.agrees, "says": check.says} for check in checks or ()]
    agreed = all(row["agrees"] for row in rows)
    if session.output == "json":
        click.echo(format_json({**_fields(plan), "done": checks is not None, "agreed": agreed, "checks": rows}))
    elif checks is not None:
        table = [{"check": check.subject, "ok": check.agrees, "result": check.says} for check in checks]
        click.echo("\n" + format_table(table, ("check", "ok", "result")))
        click.echo("\nDone, and all is ok." if agreed else "\nDone, but not all is ok: see above.")


def _fields(plan: AbortPlan) -> dict[str, Any]:
    producer, said = plan.open.producer, plan.coordinator_says
    return {
        "topic": plan.open.topic_partition.topic,
        "partition": plan.open.topic_partition.partition,
        "start_offset": plan.open.start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "transactional_id": None if said is None else said.transactional_id,
        "coordinator_says": None if said is None else said.state,
        "partitions": [str(each) for each in plan.partitions],
        "action": plan.action.name.lower(),
        "what": plan.action.value,
    }
