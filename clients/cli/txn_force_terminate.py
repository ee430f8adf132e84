"""``oncelog txn force-terminate``: abort the transaction of a transactional id, and fence its producer."""

import click

from oncelog.clients.admin.fencing import Fencing, force_terminate_transaction
from oncelog.clients.admin.transactions import TransactionDescription, describe_transaction
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cli.txn_arguments import transactional_id_argument
from oncelog.clients.cluster import Cluster


@click.command("force-terminate", epilog=example("oncelog txn force-terminate billing-1"))
@transactional_id_argument
@with_session()
def force_terminate(session: Session, transactional_id: str) -> None:
    """Fence the producer of a transactional id, and abort its transaction everywhere (KIP-939)."""

    async def work(cluster: Cluster) -> tuple[Fencing, TransactionDescription]:
        fencing = await force_terminate_transaction(cluster, transactional_id)
        return fencing, await describe_transaction(cluster, transactional_id)

    fencing, after = session.run(work)
    before = fencing.before
    fields = {
        "transactional_id": before.transactional_id,
        "old_producer_id": before.producer_id,
        "old_producer_epoch": before.producer_epoch,
        "old_state": before.state,
        "producer_id": fencing.producer_id,
        "producer_epoch": fencing.producer_epoch,
        "state": after.state,
    }
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in before.partitions]
    session.show_record(fields, "partitions", rows, ("topic", "partition"))
