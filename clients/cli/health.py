"""``oncelog health`` and ``oncelog wait``: is the cluster there, and is it whole?"""

import asyncio
from typing import Any, NamedTuple

import click

from clients.cli.session import NO_BROKER, REFUSED, Session, example, with_session
from clients.cluster import Cluster
from clients.errors import Unreachable
from clients.retry import Backoff, Retry
from protocol.messages.metadata import MetadataResponse


def _summary(cluster: Cluster, metadata: MetadataResponse) -> dict[str, Any]:
    partitions = [partition for topic in metadata.topics for partition in topic.partitions]
    offline = sum(partition.leader_id not in cluster.brokers for partition in partitions)
    under_replicated = sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in partitions)
    return {
        "healthy": cluster.controller_id is not None and not offline and not under_replicated,
        "cluster_id": metadata.cluster_id,
        "controller": cluster.controller_id,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "offline": offline,
        "under_replicated": under_replicated,
    }


@click.command(epilog=example("oncelog health", "oncelog health --ready --bootstrap broker1:9092"))
@click.option("--ready", is_flag=True, help="Only ask whether the first broker that answers can serve: for containers.")
@with_session()
def health(session: Session, ready: bool) -> None:
    """Show whether the cluster is whole: a controller, a leader for each partition, all replicas in sync."""
    if ready:
        session.run(_require_ready)
        click.echo("ready")
        return
    summary, brokers = session.run(_look)
    session.show_record(summary, "brokers", brokers, ("broker", "address", "rack", "reached"))
    if not summary["healthy"] or not all(broker["reached"] for broker in brokers):
        raise click.exceptions.Exit(REFUSED)


async def _require_ready(cluster: Cluster) -> None:
    await cluster.refresh(())
    if cluster.controller_id is None:
        raise Unreachable("a broker answers, but knows no controller yet")


async def _look(cluster: Cluster) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    metadata = await cluster.refresh(None)
    brokers = [
        {
            "broker": broker.node_id,
            "address": str(cluster.brokers[broker.node_id]),
            "rack": broker.rack,
            "reached": await _reaches(cluster, broker.node_id),
        }
        for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id)
    ]
    return _summary(cluster, metadata), brokers


async def _reaches(cluster: Cluster, node_id: int) -> bool:
    """Whether the broker answers, from here, at the address that it advertises."""
    try:
        await cluster.connection_to(node_id)
    except Unreachable:
        return False
    return True


@click.command(epilog=example("oncelog wait --brokers 3 --timeout 60"))
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="How many must be there.")
@with_session()
def wait(session: Session, brokers: int) -> None:
    """Wait until so many brokers, and a controller, are there."""
    result = asyncio.run(_wait(session, brokers))
    if result.is_enough:
        click.echo(f"{result.seen} broker{'s' if result.seen > 1 else ''} and a controller")
        return
    click.echo(f"Error: after {session.timeout_seconds:g} s {result.missing}", err=True)
    raise click.exceptions.Exit(NO_BROKER)


class _Sighting(NamedTuple):
    """What the last look found."""

    is_enough: bool
    seen: int
    missing: str


async def _wait(session: Session, brokers: int) -> _Sighting:
    """The first sighting that is enough, or the last before the time is up."""
    async with session.cluster() as cluster:
        retry = Retry(Backoff(rng=cluster.rng), session.timeout_seconds)
        while True:
            sighting = await _look_for(cluster, brokers, retry.remaining_seconds)
            if sighting.is_enough or not await retry.pause():
                return sighting


async def _look_for(cluster: Cluster, brokers: int, seconds: float) -> _Sighting:
    try:
        async with asyncio.timeout(seconds):
            await cluster.refresh(())
    except (Unreachable, TimeoutError) as error:
        return _Sighting(False, 0, str(error) or "no answer")
    seen = len(cluster.brokers)
    if seen < brokers:
        return _Sighting(False, seen, f"{seen} of {brokers} brokers")
    return _Sighting(cluster.controller_id is not None, seen, "no controller")
