"""``oncelog health`` and ``oncelog wait``: check the health of a cluster, and wait for its brokers."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

import click

from oncelog.clients.cli.cluster_health import (
    PARTITION_COLUMNS,
    SHOWN_PARTITIONS,
    ClusterHealth,
    table_rows,
)
from oncelog.clients.cli.directories import about_directory, failed_directories
from oncelog.clients.cli.hidden_names import HIDDEN, may_hide_topics
from oncelog.clients.cli.output import format_json, format_table
from oncelog.clients.cli.responding_brokers import responding_brokers
from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.clients.cli.session import NO_BROKER, REFUSED, Session, complain, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal, Unreachable
from oncelog.clients.retry import Backoff, Retry
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.printable import without_controls


@click.command(epilog=example("oncelog health", "oncelog health --ready --bootstrap broker1:9092"))
@click.option(
    "--ready", is_flag=True, help="Check only whether the first broker that responds can serve: for containers."
)
@with_session()
def health(session: Session, ready: bool) -> None:
    """Check the health of a cluster.

    It is healthy if it has a controller, a leader for each partition and all replicas in sync, and if every broker is
    reachable, in contact with its metadata store (ZooKeeper), able to write, and serving its groups and transactional
    ids, or able to create the topics in which these are kept. The exit code is 1 if it is not.

    A broker counts as alive until its ZooKeeper session ends. One that has ended before is not reached, and partitions
    may still be listed as led by it.
    """
    if ready:
        session.run(_require_ready)
        click.echo("ready")
        return
    found = session.run(_see_all)
    if session.output == "json":
        extra = {"brokers": found.brokers, "problem_partitions": found.partitions, "problems": found.problems}
        click.echo(format_json({**found.summary, **extra}))
    else:
        _print(session, found)
    if not found.is_healthy:
        raise click.exceptions.Exit(REFUSED)


async def _see_all(cluster: Cluster) -> ClusterHealth:
    """Return the health of a cluster, of which this client must see every topic."""
    found = await see_cluster(cluster)
    if not await may_hide_topics(cluster):
        return found
    return replace(found, summary={**found.summary, "healthy": False}, problems=[*found.problems, HIDDEN])


def _print(session: Session, found: ClusterHealth) -> None:
    session.show_record(found.summary, "brokers", found.brokers, ("broker", "address", "rack", "reached", "store"))
    rows = [{**row, "in_sync": row["in_sync"] or None} for row in table_rows(found.partitions)]
    if rows:
        click.echo("\n" + format_table(rows[:SHOWN_PARTITIONS], PARTITION_COLUMNS))
    hidden = len(rows) - SHOWN_PARTITIONS
    if hidden > 0:
        click.echo(f"… and {hidden} more")
    if hidden > 0 or len(rows) < len(found.partitions):
        click.echo("--format json names every partition")
    for problem in found.problems:
        click.echo(without_controls(f"\nProblem: {problem}"))


async def _require_ready(cluster: Cluster) -> None:
    await cluster.refresh(())
    if cluster.metadata.controller_id is None:
        raise Unreachable("a broker responds, but knows no controller yet")
    for path in (await failed_directories(await cluster.connection_to_any())).paths:
        raise BrokerRefused(path, Refusal(error=ErrorCode.KAFKA_STORAGE_ERROR, message=about_directory(path)))


_WAIT_ADVICE: Final = (
    "start the brokers that are missing and see their logs, or wait longer with --timeout; `oncelog "
    "doctor` shows which advertised addresses this machine can use, and --bootstrap or ONCELOG_BOOTSTRAP where to look"
)


@click.command(epilog=example("oncelog wait --brokers 3 --timeout 60"))
@click.option(
    "--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of brokers to wait for."
)
@with_session()
def wait(session: Session, brokers: int) -> None:
    """Wait until a number of brokers respond, one of them the controller.

    A broker that is listed as a member of the cluster and does not respond does not count.
    """
    result = asyncio.run(_wait(session, brokers))
    if result.is_enough and session.output == "json":
        click.echo(format_json({"brokers": result.responding, "controller": result.controller_id}))
        return
    if result.is_enough:
        click.echo(f"{result.responding} broker{'s' if result.responding > 1 else ''} and a controller")
        return
    complain(f"Error: after {session.timeout_seconds:g} s {result.missing}", _WAIT_ADVICE)
    raise click.exceptions.Exit(NO_BROKER)


class Sighting(NamedTuple):
    """What the last look found."""

    is_enough: bool
    responding: int
    """The number of brokers that respond."""
    missing: str
    controller_id: int | None = None


async def _wait(session: Session, brokers: int) -> Sighting:
    """Return the first sighting that is enough, or the last one before the time-out."""
    async with session.cluster() as cluster, session.watching(cluster):
        retry = Retry(Backoff(rng=cluster.rng), session.timeout_seconds)
        sighting = Sighting(False, 0, f"no response from {', '.join(map(str, session.bootstrap))}")
        while True:
            sighting = await look_for(cluster, brokers, retry.remaining_seconds) or sighting
            if sighting.is_enough or not await retry.pause():
                return sighting


async def look_for(cluster: Cluster, brokers: int, seconds: float) -> Sighting | None:
    """Look for so many brokers and a controller that respond, as the metadata of one broker lists them.

    Returns None if the time is over before there is a response: what was seen before says more.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(seconds):
            await cluster.refresh(())
    except TimeoutError:
        return None
    except Unreachable as error:
        return Sighting(False, 0, str(error))
    listed = sorted(cluster.brokers)
    responding = await responding_brokers(cluster, listed, deadline - asyncio.get_running_loop().time())
    return judge(listed, responding, cluster.metadata.controller_id, brokers)


def judge(listed: Collection[int], responding: Collection[int], controller_id: int | None, brokers: int) -> Sighting:
    """Return whether enough of the brokers that are listed respond, the controller among them."""
    count = len(responding)
    silent = ", ".join(str(each) for each in listed if each not in responding)
    if count < brokers:
        listed_only = f"; no response from {silent}, listed as members of the cluster" if silent else ""
        return Sighting(False, count, f"{count} of {brokers} brokers{listed_only}")
    if controller_id is None:
        return Sighting(False, count, "no controller")
    if controller_id not in responding:
        return Sighting(False, count, f"no response from the controller, broker {controller_id}")
    return Sighting(True, count, "", controller_id)
