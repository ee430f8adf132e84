"""``oncelog txn find-hanging``: transactions that a partition has open and that no coordinator will end."""

from typing import Any, Final

import click

from oncelog.clients.admin.hanging_transactions import (
    Findings,
    HangingTransaction,
    find_hanging_transactions,
    partitions_to_search,
)
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.session import Session, example, wall_clock, with_session
from oncelog.clients.cluster import Cluster

_MINUTE_MS: Final = 60_000
_COLUMNS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp",
    "duration_min",
    "transactional_id",
    "reason",
)


@click.command(
    epilog=example(
        "oncelog txn find-hanging --broker-id 1",
        "oncelog txn find-hanging --topic orders --partition 0 --max-transaction-timeout 5",
    )
)
@click.option("--broker-id", type=int, help="Search the replicas of this broker.")
@click.option("--topic", "-t", metavar="TOPIC", help="Search this topic.")
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Search only this partition of --topic.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Also report transactions that their coordinator knows, if they are open for longer.",
)
@with_session()
def find_hanging(
    session: Session, broker_id: int | None, topic: str | None, partition: int | None, max_transaction_timeout: int
) -> None:
    """Find hanging transactions: open in a partition, and unknown to their coordinator.

    They hold back readers of committed records until they are aborted.
    """
    if topic is None and broker_id is None:
        raise click.UsageError("name what to search: --broker-id or --topic")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")

    async def work(cluster: Cluster) -> Findings:
        if topic is not None and partition is not None:
            partitions = await find_partitions(cluster, {topic: [partition]})
        else:
            partitions = await partitions_to_search(cluster, topic=topic, broker_id=broker_id)
        return await find_hanging_transactions(
            cluster,
            partitions,
            now_ms=wall_clock(),
            max_transaction_timeout_ms=max_transaction_timeout * _MINUTE_MS,
            broker_id=broker_id,
        )

    findings = session.run(work)
    session.show_rows([_row(found) for found in findings.hanging], _COLUMNS, none="No hanging transactions.")
    session.fail_if_any({str(tp): refused for tp, refused in findings.failed.items()})


def _row(found: HangingTransaction) -> dict[str, Any]:
    producer, said = found.open.producer, found.coordinator_says
    return {
        "topic": found.open.topic_partition.topic,
        "partition": found.open.topic_partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": found.open.start_offset,
        "last_timestamp": producer.last_timestamp,
        "duration_min": (wall_clock() - producer.last_timestamp) // _MINUTE_MS,
        "transactional_id": None if said is None else said.transactional_id,
        "reason": found.reason.value,
    }
