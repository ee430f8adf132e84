"""``oncelog txn``: transactional ids and their transactions, the producers that partitions know, and ending what hangs.

The verbs and options are those of Kafka's ``kafka-transactions.sh`` (TransactionsCommand), under the names that our
other commands use as well.
"""

from typing import Final

import click

from oncelog.clients.admin.producers import ProducersOfPartitions, describe_producers
from oncelog.clients.admin.transactions import STATES, TransactionDescription, describe_transaction, list_transactions
from oncelog.clients.cli.hidden_names import may_hide_transactional_ids
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.session import Session, example, wall_clock, with_session
from oncelog.clients.cli.txn_arguments import topic_argument, transactional_id_argument
from oncelog.clients.cluster import Cluster
from oncelog.clients.routes import Coordinator

_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""States in which no transaction is open or being ended."""


@click.group(
    cls=LazyGroup,
    lazy={
        "abort": "oncelog.clients.cli.txn_abort:abort",
        "find-hanging": "oncelog.clients.cli.txn_find_hanging:find_hanging",
        "force-terminate": "oncelog.clients.cli.txn_force_terminate:force_terminate",
        "log": "oncelog.clients.cli.txn_log:log",
    },
)
def txn() -> None:
    """List and describe transactions, find hanging ones, end them, print their history."""


@txn.command("list", epilog=example("oncelog txn list --state Ongoing", "oncelog txn list --duration-filter 60000"))
@click.option(
    "--state",
    "-s",
    "states",
    multiple=True,
    type=click.Choice(list(STATES.values()), case_sensitive=False),
    metavar=f"[{'|'.join(STATES.values())}]",
    help="List only ids in this state; repeatable.",
)
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=int, help="List only ids of this producer id; repeatable."
)
@click.option(
    "--duration-filter",
    "--longer-than",
    "longer_than_ms",
    type=int,
    metavar="MS",
    help="List only transactions open for longer; negative for all ids.",
)
@click.option(
    "--transactional-id-pattern", "pattern", metavar="REGEX", help="List only ids that match as a whole (RE2 syntax)."
)
@with_session()
def list_command(
    session: Session,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
) -> None:
    """List the transactional ids of all coordinators."""
    found = session.run(
        lambda cluster: list_transactions(
            cluster,
            states=states,
            producer_ids=producer_ids,
            running_longer_than_ms=longer_than_ms,
            transactional_id_pattern=pattern,
        )
    )
    rows = [
        {
            "transactional_id": listed.transactional_id,
            "coordinator": listed.coordinator,
            "producer_id": listed.producer_id,
            "state": listed.state,
        }
        for listed in found
    ]
    is_filtered = bool(states or producer_ids or pattern or longer_than_ms is not None)
    none = "No transactional ids match." if is_filtered else "No transactional ids."
    if not rows and session.run(may_hide_transactional_ids):
        none = f"{none.removesuffix('.')} among those that this client may describe."
    session.show_rows(rows, ("transactional_id", "coordinator", "producer_id", "state"), none=none)


@txn.command(epilog=example("oncelog txn describe billing-1"))
@transactional_id_argument
@with_session()
def describe(session: Session, transactional_id: str) -> None:
    """Show a transactional id and the partitions of its transaction."""

    async def work(cluster: Cluster) -> tuple[int, TransactionDescription]:
        described = await describe_transaction(cluster, transactional_id)
        return await cluster.coordinator(Coordinator.of_transactional_id(transactional_id)), described

    coordinator, described = session.run(work)
    start_ms = None if described.state in _ENDED else described.start_ms
    fields = {
        "coordinator": coordinator,
        "transactional_id": described.transactional_id,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "start_ms": start_ms,
        "open_for_ms": None if start_ms is None else wall_clock() - start_ms,
    }
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in described.partitions]
    session.show_record(fields, "partitions", rows, ("topic", "partition"))


@txn.command(epilog=example("oncelog txn producers orders --partition 0"))
@topic_argument
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; repeatable. Default: all.",
)
@click.option("--broker-id", type=int, help="Read the replicas of this broker, instead of the leaders.")
@with_session()
def producers(session: Session, topic: str, partitions: tuple[int, ...], broker_id: int | None) -> None:
    """Show the active producers of a topic, and the first offset of their open transactions."""

    async def work(cluster: Cluster) -> ProducersOfPartitions:
        chosen = await find_partitions(cluster, {topic: partitions})
        return await describe_producers(cluster, chosen, broker_id=broker_id)

    described = session.run(work)
    columns = (
        "partition",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "last_sequence",
        "last_timestamp",
        "transaction_start_offset",
    )
    rows = [
        {
            "partition": tp.partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp": producer.last_timestamp,
            "transaction_start_offset": producer.transaction_start_offset,
        }
        for tp, found in sorted(described.found.items())
        for producer in found
    ]
    session.show_rows(rows, columns, none=f"No producers: none with an id has written to {topic} lately.")
    session.fail_if_any({str(tp): refused for tp, refused in described.refusals.items()})
