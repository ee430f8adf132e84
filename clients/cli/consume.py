"""``oncelog consume``: records to standard output."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import click

from clients.admin.group_offsets import commit_offsets, committed_offsets
from clients.cli.record_writers import TABLE_HEAD, WRITERS, Writer, write_table_row
from clients.cli.session import Session, example, with_session
from clients.cluster import Cluster
from clients.consumer.log_reader import LogReader
from clients.consumer.positions import BEGINNING, END, Position, parse_position, resolve_position
from clients.errors import BrokerRefused, Refusal, error_code
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Consumption:
    """What to read, and when to stop."""

    topics: tuple[str, ...]
    only_partitions: tuple[int, ...]
    position: Position | None
    limit: int | None
    until_end: bool
    read_committed: bool
    group_id: str | None
    write: Writer

    async def run(self, cluster: Cluster) -> None:
        partitions = await self._choose(cluster)
        start = await self._start(cluster, partitions)
        ends = await self._ends(cluster, partitions) if self.until_end else None
        delivered = dict(start)
        if self.write is write_table_row:
            click.echo(TABLE_HEAD)
        unread = {tp: offset for tp, offset in start.items() if ends is None or offset < ends[tp]}
        try:
            await self._deliver(LogReader(cluster, unread, read_committed=self.read_committed), ends, delivered)
        finally:
            sys.stdout.flush()  # What is committed as printed has been.
            moved = {tp: offset for tp, offset in delivered.items() if offset != start[tp]}
            if self.group_id is not None and moved:
                await _commit(cluster, self.group_id, moved)

    async def _choose(self, cluster: Cluster) -> list[TopicPartition]:
        chosen = []
        for name, topic in (await cluster.topics(self.topics)).items():
            if topic.error_code:
                raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
            indexes = self.only_partitions or sorted(partition.partition_index for partition in topic.partitions)
            chosen += [TopicPartition(name, index) for index in indexes]
        return chosen

    async def _start(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, unless a position was given; otherwise at the beginning."""
        if self.position is not None:
            return await resolve_position(cluster, partitions, self.position, read_committed=self.read_committed)
        start = await resolve_position(cluster, partitions, BEGINNING)
        if self.group_id is not None:
            committed = await committed_offsets(cluster, self.group_id, require_stable=True)
            start |= {tp: committed[tp].offset for tp in partitions if tp in committed}
        return start

    async def _ends(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await resolve_position(cluster, partitions, END, read_committed=self.read_committed)

    async def _deliver(
        self, reader: LogReader, ends: Mapping[TopicPartition, int] | None, delivered: dict[TopicPartition, int]
    ) -> None:
        count = 0
        while self.limit is None or count < self.limit:
            if ends is not None and all(delivered[tp] >= end for tp, end in ends.items()):
                return
            for fetched in await reader.poll():
                tp = fetched.topic_partition
                for record in fetched.records:
                    if ends is not None and record.offset >= ends[tp]:
                        delivered[tp] = ends[tp]
                        break
                    self.write(tp, record)
                    delivered[tp] = record.offset + 1
                    count += 1
                    if count == self.limit:
                        return
                else:
                    delivered[tp] = fetched.next_position
            sys.stdout.flush()
            for tp, error in reader.failed.items():
                raise BrokerRefused(str(tp), Refusal(error=error))


async def _commit(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    outcomes = await commit_offsets(cluster, group_id, offsets)
    for tp, refused in outcomes.items():
        if refused is not None:
            raise BrokerRefused(f"group {group_id}, {tp}", refused)


@click.command(
    epilog=example(
        "oncelog consume orders --from beginning --until-end --format value",
        "oncelog consume orders -n 10 --from @2024-06-10T08:00:00+00:00 --format json",
        "oncelog consume orders --group billing -n 100",
    )
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@click.option("--partition", "-p", "partitions", multiple=True, type=click.IntRange(min=0), help="Default: all.")
@click.option(
    "--from",
    "from_",
    metavar="POSITION",
    help="beginning, end, OFFSET, -COUNT before the end, or @TIME. Default: what --group has committed, or beginning.",
)
@click.option("--number", "-n", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--until-end", "-e", is_flag=True, help="Stop where the partitions end now, instead of waiting for more.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether to leave out what belongs to open and aborted transactions.",
)
@click.option("--group", "-g", metavar="GROUP", help="Begin where this group stands, and commit what was printed.")
@with_session(formats=("table", "json", "value"))
def consume(
    session: Session,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    from_: str | None,
    number: int | None,
    until_end: bool,
    isolation: str,
    group: str | None,
) -> None:
    """Print records, of each partition in the order of their offsets."""
    try:
        position = None if from_ is None else parse_position(from_)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None
    consumption = _Consumption(
        topics=topics,
        only_partitions=partitions,
        position=position,
        limit=number,
        until_end=until_end,
        read_committed=isolation == "read_committed",
        group_id=group,
        write=WRITERS[session.output],
    )
    try:
        session.run(consumption.run)
    except KeyboardInterrupt:  # How one stops reading what has no end.
        pass
