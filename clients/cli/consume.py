"""``oncelog consume``: records to standard output."""

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import click

from clients.cli.record_writers import TABLE_HEAD, WRITERS, Writer, write_table_row
from clients.cli.session import Session, example, wall_clock, with_session
from clients.cluster import Cluster
from clients.consumer import Consumer, ConsumerConfig, OffsetAndMetadata
from clients.consumer.consumer_errors import OffsetOutOfRange
from clients.consumer.positions import BEGINNING, END, Position, parse_position, resolve_position
from clients.errors import BrokerRefused, Refusal, error_code
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Consumption:
    """What to read, and when to stop."""

    config: ConsumerConfig
    topics: tuple[str, ...]
    only_partitions: tuple[int, ...]
    position: Position | None
    limit: int | None
    until_end: bool
    write: Writer

    async def run(self, cluster: Cluster) -> None:
        partitions = await self._choose(cluster)
        async with Consumer(self.config, rng=Random(), wall_clock=wall_clock) as consumer:
            start = await self._start(cluster, consumer, partitions)
            ends = await self._ends(cluster, partitions) if self.until_end else {}
            delivered = dict(start)
            if self.write is write_table_row:
                click.echo(TABLE_HEAD)
            consumer.assign([tp for tp, offset in start.items() if tp not in ends or offset < ends[tp]])
            for topic_partition in consumer.assignment:
                consumer.seek(topic_partition, start[topic_partition])
            try:
                await self._deliver(consumer, ends, delivered)
            except OffsetOutOfRange as error:
                refused = Refusal(error=ErrorCode.OFFSET_OUT_OF_RANGE)
                raise BrokerRefused(f"{error.topic_partition} at {error.position}", refused) from error
            finally:
                sys.stdout.flush()  # What is committed as printed has been.
                moved = {tp: OffsetAndMetadata(offset) for tp, offset in delivered.items() if offset != start[tp]}
                if self.config.group_id is not None and moved:
                    await consumer.commit(moved)

    async def _choose(self, cluster: Cluster) -> list[TopicPartition]:
        chosen = []
        for name, topic in (await cluster.topics(self.topics)).items():
            if topic.error_code:
                raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
            indexes = self.only_partitions or sorted(partition.partition_index for partition in topic.partitions)
            chosen += [TopicPartition(name, index) for index in indexes]
        return chosen

    async def _start(
        self, cluster: Cluster, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where the group stands, unless a position was given; otherwise at the beginning."""
        if self.position is not None:
            return await resolve_position(cluster, partitions, self.position, read_committed=self._reads_committed)
        start = await resolve_position(cluster, partitions, BEGINNING)
        if self.config.group_id is not None:
            start |= {tp: committed.offset for tp, committed in (await consumer.committed(partitions)).items()}
        return start

    async def _ends(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await resolve_position(cluster, partitions, END, read_committed=self._reads_committed)

    @property
    def _reads_committed(self) -> bool:
        return self.config.reads_committed

    async def _deliver(
        self, consumer: Consumer, ends: Mapping[TopicPartition, int], delivered: dict[TopicPartition, int]
    ) -> None:
        """Print, and keep in ``delivered`` the offset after what has been."""
        count = 0
        while count != self.limit and not (self.until_end and all(delivered[tp] >= end for tp, end in ends.items())):
            left = self.config.max_poll_records if self.limit is None else self.limit - count
            for record in await consumer.poll(_POLL_SECONDS, min(left, self.config.max_poll_records)):
                topic_partition = record.topic_partition
                if record.offset < ends.get(topic_partition, math.inf):
                    self.write(topic_partition, record)
                    delivered[topic_partition] = record.offset + 1
                    count += 1
            for topic_partition in consumer.assignment:  # Past what is never printed, too.
                position = await consumer.position(topic_partition)
                delivered[topic_partition] = min(position, ends.get(topic_partition, position))
            sys.stdout.flush()


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
    config = ConsumerConfig(
        bootstrap=",".join(map(str, session.bootstrap)),
        client_id="oncelog-cli",
        group_id=group,
        isolation_level="read_committed" if isolation == "read_committed" else "read_uncommitted",
        auto_offset_reset="none",
        connect_timeout_ms=math.ceil(session.timeout_seconds * 1000),
        request_timeout_ms=math.ceil(session.timeout_seconds * 1000),
    )
    consumption = _Consumption(
        config=config,
        topics=topics,
        only_partitions=partitions,
        position=position,
        limit=number,
        until_end=until_end,
        write=WRITERS[session.output],
    )
    try:
        session.run(consumption.run)
    except KeyboardInterrupt:  # How one stops reading what has no end.
        pass
