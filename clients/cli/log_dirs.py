"""``oncelog log-dirs``: the log directories of brokers, their replicas and sizes."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import click

from oncelog.clients.admin.log_dirs import LogDirDescription, describe_log_dirs
from oncelog.clients.admin.named_brokers import require_broker
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal


@click.command(epilog=example("oncelog log-dirs", "oncelog log-dirs --broker-id 1 --topic orders"))
@click.option("--broker-id", "broker_ids", multiple=True, type=int, help="Only this broker; repeatable. Default: all.")
@click.option(
    "--topic", "-t", "topics", multiple=True, metavar="TOPIC", help="Show the replicas of this topic; repeatable."
)
@with_session()
def log_dirs(session: Session, broker_ids: tuple[int, ...], topics: tuple[str, ...]) -> None:
    """Show log directories, or the replicas of topics in them. Sizes are in bytes.

    Directories that end in -stray are not counted: a broker set them aside, and they stay until they are removed.
    """

    async def work(cluster: Cluster) -> dict[int, tuple[LogDirDescription, ...] | Refusal]:
        for broker_id in broker_ids:
            await require_broker(cluster, broker_id)
        described = await describe_log_dirs(cluster, broker_ids or None)
        if topics and not _replicas(_directories_of(described), topics):
            await find_partitions(cluster, dict.fromkeys(topics, ()))
        return described

    responses = session.run(work)
    described = _directories_of(responses)
    if topics:
        columns = ("broker", "topic", "partition", "size", "offset_lag", "path")
        session.show_rows(
            _replicas(described, topics), columns, none=f"No replicas of {', '.join(topics)} on these brokers."
        )
    else:
        session.show_rows(
            _directories(described),
            ("broker", "path", "replicas", "size", "usable", "total"),
            none="No log directories.",
        )
    refusals = {f"broker {broker}": response for broker, response in responses.items() if isinstance(response, Refusal)}
    refusals |= {directory.path: directory.refused for _, directory in described if directory.refused is not None}
    session.fail_if_any(refusals)


def _directories_of(
    responses: Mapping[int, tuple[LogDirDescription, ...] | Refusal],
) -> list[tuple[int, LogDirDescription]]:
    return [
        (broker, directory)
        for broker, directories in responses.items()
        if not isinstance(directories, Refusal)
        for directory in directories
    ]


def _directories(described: Iterable[tuple[int, LogDirDescription]]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker,
            "path": directory.path,
            "replicas": len(directory.replicas),
            "size": sum(replica.size_bytes for replica in directory.replicas.values()),
            "usable": directory.usable_bytes,
            "total": directory.total_bytes,
        }
        for broker, directory in described
    ]


def _replicas(described: Iterable[tuple[int, LogDirDescription]], topics: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker,
            "topic": tp.topic,
            "partition": tp.partition,
            "size": replica.size_bytes,
            "offset_lag": replica.offset_lag,
            "path": directory.path,
        }
        for broker, directory in described
        for tp, replica in sorted(directory.replicas.items())
        if tp.topic in topics
    ]
