"""``oncelog consume``: records to standard output."""

import asyncio
import math
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType

import click

from clients.background_tasks import BackgroundTasks
from clients.cli.advertised_addresses import (
    DOCTOR_ADVICE,
    AdvertisedUnreachable,
    explain_silence,
    unreachable_leaders,
)
from clients.cli.consumption import Consumption, GroupOffsets
from clients.cli.record_writers import TABLE_HEAD, Writer, choose_writer
from clients.cli.remedies import NO_ANSWER
from clients.cli.session import Session, complain, example, wall_clock, with_session
from clients.cluster import Cluster
from clients.consumer import Consumer, ConsumerConfig
from clients.consumer.consumer_errors import OffsetOutOfRange
from clients.consumer.positions import BEGINNING, END, Position, parse_position, resolve_position
from clients.errors import BrokerRefused, Refusal, error_code
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What to read, and when to stop."""

    config: ConsumerConfig
    topics: tuple[str, ...]
    only_partitions: tuple[int, ...]
    position: Position | None
    limit: int | None
    until_end: bool
    write: Writer
    head: str | None

    async def run(self, cluster: Cluster) -> None:
        partitions = await self._choose(cluster)
        async with Consumer(self.config, rng=Random(), wall_clock=wall_clock) as consumer:
            consumption = Consumption(
                consumer=consumer,
                write=self.write,
                flush=sys.stdout.flush,
                limit=self.limit,
                ends=await self._resolve(cluster, partitions, END) if self.until_end else {},
                until_end=self.until_end,
                group=None if self.config.group_id is None else self._group(cluster, consumer),
            )
            if consumption.group is None:
                await self._assign(cluster, consumption, partitions)
            else:
                consumer.subscribe(self.topics, consumption.group)
            if self.head is not None:
                click.echo(self.head)
            tasks = BackgroundTasks("oncelog consume")
            tasks.spawn(self._warn_of_silence(cluster, consumption), "look at silent leaders")
            try:
                with _stopped_by_signals(consumption.stop):
                    await consumption.read()
                    if consumption.group is not None:
                        await consumption.group.commit_finally()
            except OffsetOutOfRange as error:
                refused = Refusal(error=ErrorCode.OFFSET_OUT_OF_RANGE)
                raise BrokerRefused(f"{error.topic_partition} at {error.position}", refused) from error
            finally:
                await tasks.stop()
                click.echo(f"Read {consumption.count} record{'' if consumption.count == 1 else 's'}.", err=True)

    async def _choose(self, cluster: Cluster) -> list[TopicPartition]:
        chosen = []
        for name, topic in (await cluster.topics(self.topics)).items():
            if topic.error_code:
                raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
            indexes = self.only_partitions or sorted(partition.partition_index for partition in topic.partitions)
            chosen += [TopicPartition(name, index) for index in indexes]
        return chosen

    async def _assign(self, cluster: Cluster, consumption: Consumption, partitions: Collection[TopicPartition]) -> None:
        """Without a group: read the partitions that are not at their end."""
        start = await self._resolve(cluster, partitions, self.position or BEGINNING)
        ends = consumption.ends
        unread = [tp for tp, offset in start.items() if tp not in ends or offset < ends[tp]]
        if not unread:
            return consumption.stop()
        consumption.consumer.assign(unread)
        for topic_partition in unread:
            consumption.consumer.seek(topic_partition, start[topic_partition])

    def _group(self, cluster: Cluster, consumer: Consumer) -> GroupOffsets:
        position = self.position

        async def find_start(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            assert position is not None
            return await self._resolve(cluster, partitions, position)

        return GroupOffsets(consumer=consumer, find_start=find_start if position is not None else None, warn=_warn)

    async def _resolve(
        self, cluster: Cluster, partitions: Collection[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        read_committed = self.config.reads_committed and position != BEGINNING
        try:
            return await resolve_position(cluster, partitions, position, read_committed=read_committed)
        except BrokerRefused as error:
            if error.refusal.error not in NO_ANSWER:
                raise
            unreachable = await unreachable_leaders(cluster, self.topics)
            if not unreachable:
                raise
            raise AdvertisedUnreachable("; ".join(unreachable)) from error

    async def _warn_of_silence(self, cluster: Cluster, consumption: Consumption) -> None:
        reason = await explain_silence(cluster, self.topics, lambda: not consumption.count)
        if reason is not None:
            complain(f"Warning: nothing can be read: {reason}", DOCTOR_ADVICE)


def _warn(text: str) -> None:
    complain(f"Warning: {text}")


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have the first SIGINT or SIGTERM stop the reading in order; a second one ends the process."""
    loop = asyncio.get_running_loop()
    taken = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    former = {each: signal.getsignal(each) for each in taken}

    def heed(number: int, frame: FrameType | None) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)
        stop()
        loop.call_soon_threadsafe(lambda: None)  # The loop looks at what is to be done.

    for each in taken:
        signal.signal(each, heed)
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


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
    help="beginning, end, OFFSET, -COUNT before the end, or @TIME. Default: beginning. With --group only where "
    "nothing is committed: a group goes on where it stands, and `oncelog group seek` moves it.",
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
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Join this group: share partitions with its members, and commit what was printed, every 5 s and at the end.",
)
@click.option("--raw", is_flag=True, help="Print keys and values as they are, control characters too.")
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
    raw: bool,
) -> None:
    """Print records, of each partition in the order of their offsets, until Ctrl-C or SIGTERM.

    How many were read is said on standard error. Control characters are escaped (\\x1b) unless --raw is given.
    """
    if group is not None and partitions:
        raise click.UsageError("--group and --partition exclude each other: the group assigns the partitions")
    if sys.stdout is None:
        raise click.UsageError("standard output is closed: there is nowhere to print records to")
    try:
        position = None if from_ is None else parse_position(from_)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None
    config = ConsumerConfig(
        bootstrap=",".join(map(str, session.bootstrap)),
        client_id="oncelog-cli",
        group_id=group,
        isolation_level="read_committed" if isolation == "read_committed" else "read_uncommitted",
        auto_offset_reset="none" if group is None else "earliest",
        connect_timeout_ms=math.ceil(session.timeout_seconds * 1000),
        request_timeout_ms=math.ceil(session.timeout_seconds * 1000),
    )
    request = _Request(
        config=config,
        topics=topics,
        only_partitions=partitions,
        position=position,
        limit=number,
        until_end=until_end,
        write=choose_writer(session.output, raw=raw),
        head=TABLE_HEAD if session.output == "table" else None,
    )
    try:
        session.run(request.run)
    except KeyboardInterrupt:  # How one stops reading what has no end.
        pass
