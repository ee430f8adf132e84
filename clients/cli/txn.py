"""``oncelog txn``: transactional ids, their transactions, and the producers that partitions know."""

import click

from clients.admin.producers import ActiveProducer, describe_producers
from clients.admin.transactions import describe_transaction, list_transactions
from clients.cli.lazy_group import LazyGroup
from clients.cli.session import Session, example, wall_clock, with_session
from clients.cluster import Cluster, LeaderAnswers
from clients.errors import BrokerRefused, Refusal, error_code
from protocol.topic_partition import TopicPartition


@click.group(cls=LazyGroup)
def txn() -> None:
    """Transactions: list, describe, the producers of a topic."""


@txn.command("list", epilog=example("oncelog txn list --state Ongoing"))
@click.option(
    "--state", "-s", "states", multiple=True, help="Only ids in this state, such as Ongoing or PrepareCommit."
)
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only this producer's.")
@click.option("--longer-than", "longer_than_ms", type=int, metavar="MS", help="Only transactions open for longer.")
@with_session()
def list_command(
    session: Session, states: tuple[str, ...], producer_ids: tuple[int, ...], longer_than_ms: int | None
) -> None:
    """List the transactional ids of all coordinators."""
    found = session.run(
        lambda cluster: list_transactions(
            cluster, states=states, producer_ids=producer_ids, running_longer_than_ms=longer_than_ms
        )
    )
    rows = [
        {
            "transactional_id": listed.transactional_id,
            "producer_id": listed.producer_id,
            "state": listed.state,
            "coordinator": listed.coordinator,
        }
        for listed in found
    ]
    session.show_rows(rows, ("transactional_id", "producer_id", "state", "coordinator"))


@txn.command(epilog=example("oncelog txn describe billing-1"))
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID")
@with_session()
def describe(session: Session, transactional_id: str) -> None:
    """Show a transactional id and the partitions of its transaction."""
    described = session.run(lambda cluster: describe_transaction(cluster, transactional_id))
    fields = {
        "transactional_id": described.transactional_id,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "start_ms": described.start_ms,
        "open_for_ms": None if described.start_ms is None else wall_clock() - described.start_ms,
    }
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in described.partitions]
    session.show_record(fields, "partitions", rows, ("topic", "partition"))


@txn.command(epilog=example("oncelog txn producers orders --partition 0"))
@click.argument("topic", metavar="TOPIC")
@click.option("--partition", "-p", "partitions", multiple=True, type=click.IntRange(min=0), help="Default: all.")
@with_session()
def producers(session: Session, topic: str, partitions: tuple[int, ...]) -> None:
    """Show the producers that wrote to a topic lately, and where their open transactions began."""

    async def work(cluster: Cluster) -> LeaderAnswers[tuple[ActiveProducer, ...]]:
        known = (await cluster.topics([topic]))[topic]
        if known.error_code:
            raise BrokerRefused(f"topic {topic}", Refusal(error=error_code(known.error_code)))
        indexes = partitions or sorted(partition.partition_index for partition in known.partitions)
        return await describe_producers(cluster, [TopicPartition(topic, index) for index in indexes])

    answers = session.run(work)
    columns = (
        "partition",
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "transaction_start_offset",
    )
    rows = [
        {
            "partition": tp.partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start_offset": producer.transaction_start_offset,
        }
        for tp, found in sorted(answers.found.items())
        for producer in found
    ]
    session.show_rows(rows, columns)
    if answers.failed:
        session.fail({str(tp): Refusal(error=error) for tp, error in answers.failed.items()})
