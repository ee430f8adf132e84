"""``oncelog consume``: records to standard output."""

import math
import signal
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final, Literal

import click

from oncelog.clients.cli.consumption import Consumption
from oncelog.clients.cli.group_offsets import GroupOffsets
from oncelog.clients.cli.named_partitions import find_partitions
from oncelog.clients.cli.paced_output import PacedOutput
from oncelog.clients.cli.record_writers import TABLE_HEAD, Writer, choose_writer
from oncelog.clients.cli.remedies import NO_RESPONSE, remedy
from oncelog.clients.cli.session import NO_BROKER, Session, complain, example, wall_clock, with_session
from oncelog.clients.cli.signals import SIGNAL_EXIT_OFFSET, stopped_by_signals
from oncelog.clients.cli.waiting import Watch
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.consumer.consumer_errors import OffsetOutOfRange
from oncelog.clients.consumer.positions import BEGINNING, END, Position, PositionKind, parse_position, resolve_position
from oncelog.clients.errors import (
    BrokerRefused,
    ConnectionLost,
    NoBrokerReachable,
    Refusal,
    RequestTimedOut,
    Unreachable,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

_HINDERED_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 10.0
_HINDERED_CLOSE_SECONDS: Final = 0.2
"""Seconds for leaving a group whose coordinator is unreachable."""
_HEAD: Final = "the reader of standard output has gone; to read and commit a number of records, pass -n NUMBER"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What to read, and when to stop."""

    config: ConsumerConfig
    topics: tuple[str, ...]
    only_partitions: tuple[int, ...]
    position: Position | None
    limit: int | None
    until_end: bool
    timeout_seconds: float
    show: Writer
    head: str | None

    async def run(self, cluster: Cluster, watch: Watch) -> None:
        partitions = await self._choose(cluster)
        consumer = Consumer(self.config, rng=Random(), wall_clock=wall_clock)
        watch.add(consumer)
        try:
            await consumer.start()
            ends = await self._resolve(cluster, watch, partitions, END) if self.until_end else {}
            consumption = self._consumption(cluster, watch, consumer, ends)
            if consumption.group is None:
                await self._assign(cluster, watch, consumption, partitions)
            else:
                consumer.subscribe(self.topics, consumption.group)
            await self._read(consumption)
        finally:
            is_hindered = watch.is_hindered(_HINDERED_SECONDS)
            await consumer.close(_HINDERED_CLOSE_SECONDS if is_hindered else _CLOSE_SECONDS)

    def _consumption(
        self, cluster: Cluster, watch: Watch, consumer: Consumer, ends: dict[TopicPartition, int]
    ) -> Consumption:
        group_id, output = self.config.group_id, PacedOutput(sys.stdout.fileno())

        def raise_if_hindered() -> None:
            why = watch.why(f"nothing could be read within {self.timeout_seconds:g} s")
            if why is not None:
                raise why

        return Consumption(
            consumer=consumer,
            show=self.show,
            output=output,
            limit=self.limit,
            ends=ends,
            until_end=self.until_end,
            begin_seconds=self.timeout_seconds,
            on_late=raise_if_hindered,
            group=None if group_id is None else self._group(cluster, watch, consumer, output, group_id),
        )

    async def _read(self, consumption: Consumption) -> None:
        if self.head is not None:
            click.echo(self.head)
        sys.stdout.flush()
        try:
            with stopped_by_signals(consumption.stop):
                await consumption.read()
                await consumption.let_reader_take()
                if consumption.group is not None and not await consumption.group.commit_finally():
                    raise click.exceptions.Exit(NO_BROKER)
        except BrokenPipeError:
            where = None if consumption.group is None else await consumption.group.describe_uncommitted()
            if where:
                _warn(
                    f"what was printed since the last commit is not committed: the next run continues at {where}", _HEAD
                )
            raise
        except OffsetOutOfRange as error:
            refused = Refusal(error=ErrorCode.OFFSET_OUT_OF_RANGE)
            raise BrokerRefused(f"{error.topic_partition} at {error.position}", refused) from error
        finally:
            click.echo(f"Read {consumption.count} record{'' if consumption.count == 1 else 's'}.", err=True)

    async def _choose(self, cluster: Cluster) -> list[TopicPartition]:
        return await find_partitions(cluster, dict.fromkeys(self.topics, self.only_partitions))

    async def _assign(
        self, cluster: Cluster, watch: Watch, consumption: Consumption, partitions: Collection[TopicPartition]
    ) -> None:
        """Assign the partitions that are not at their end, without a group."""
        start = await self._resolve(cluster, watch, partitions, self.position or BEGINNING)
        ends = consumption.ends
        self._warn_of_start_beyond_end(start, ends)
        unread = [tp for tp, offset in start.items() if tp not in ends or offset < ends[tp]]
        if not unread:
            return consumption.stop()
        consumption.consumer.assign(unread)
        for topic_partition in unread:
            consumption.consumer.seek(topic_partition, start[topic_partition])

    def _warn_of_start_beyond_end(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        beyond = [f"{tp} ends at {ends[tp]}" for tp in sorted(start) if tp in ends and start[tp] > ends[tp]]
        if beyond and self.position is not None and self.position.kind is PositionKind.OFFSET:
            _warn(
                f"no offset {max(start.values())}: {', '.join(beyond)}",
                remedy(Refusal(error=ErrorCode.OFFSET_OUT_OF_RANGE)),
            )

    def _group(
        self, cluster: Cluster, watch: Watch, consumer: Consumer, output: PacedOutput, group_id: str
    ) -> GroupOffsets:
        position = self.position

        async def find_start(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            assert position is not None
            found = await self._resolve(cluster, watch, partitions, position)
            return found if position.kind is not PositionKind.OFFSET else await self._within_logs(cluster, watch, found)

        return GroupOffsets(
            consumer=consumer,
            output=output,
            find_start=find_start if position is not None else None,
            warn=_warn,
            group_id=group_id,
            is_hindered=watch.is_hindered,
        )

    async def _within_logs(
        self, cluster: Cluster, watch: Watch, wanted: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the logs nearest to those wanted: the group has nothing yet that could be lost."""
        begins = await self._resolve(cluster, watch, wanted, BEGINNING)
        ends = await resolve_position(cluster, wanted, END)
        found = {tp: min(max(offset, begins[tp]), ends[tp]) for tp, offset in wanted.items()}
        moved = [
            f"{tp} {'begins' if found[tp] > offset else 'ends'} at {found[tp]}"
            for tp, offset in sorted(wanted.items())
            if found[tp] != offset
        ]
        if moved:
            offset = next(iter(wanted.values()))
            _warn(f"no offset {offset}, reading begins as near to it as there are records: {', '.join(moved)}")
        return found

    async def _resolve(
        self, cluster: Cluster, watch: Watch, partitions: Collection[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        read_committed = self.config.reads_committed and position != BEGINNING
        try:
            return await resolve_position(cluster, partitions, position, read_committed=read_committed)
        except NoBrokerReachable:
            raise
        except (BrokerRefused, Unreachable, ConnectionLost, RequestTimedOut) as error:
            is_refused = isinstance(error, BrokerRefused) and error.refusal.error not in NO_RESPONSE
            why = None if is_refused else watch.why(str(error))
            if why is None:
                raise
            raise why from error


def _warn(text: str, advice: str | None = None) -> None:
    complain(f"Warning: {text}", advice)


@click.command(
    epilog=example(
        "oncelog consume orders --from beginning --until-end --format value",
        "oncelog consume orders -n 10 --from @2024-06-10T08:00:00+00:00 --format json",
        "oncelog consume orders --group billing -n 100",
    )
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Read only this partition; repeatable. Default: all.",
)
@click.option(
    "--from",
    "from_",
    metavar="POSITION",
    help="Start: beginning, end, OFFSET, -N (N offsets before the end), or @TIME. Default: beginning. With --group "
    "only where the group has committed nothing; `oncelog group seek` moves a group.",
)
@click.option("--number", "-n", type=click.IntRange(min=1), help="Stop after this number of records.")
@click.option("--until-end", "-e", is_flag=True, help="Stop at the current end of the partitions.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are omitted.",
)
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Join this group: share its partitions, and commit what was printed every 5 s and at the end.",
)
@click.option("--raw", is_flag=True, help="Print keys and values unchanged, control characters included.")
@with_session(
    formats=("table", "json", "value"),
    timeout_help="Time to reach the cluster and begin to read, in seconds. Reading itself has no time limit.",
)
def consume(session: Session, /, **given: Any) -> None:
    """Print the records of topics until Ctrl-C or SIGTERM; those of a partition in the order of their offsets.

    The number of records is printed on standard error. Control and format characters are escaped (\\x1b), unless --raw
    is given.
    """
    options = _Options(**given)
    if options.group is not None and options.partitions:
        raise click.UsageError("--group and --partition exclude each other: the group assigns the partitions")
    if sys.stdout is None:
        raise click.UsageError("standard output is closed: there is nowhere to print records to")
    request = options.request(session)
    try:
        session.run_watched(request.run)
    except KeyboardInterrupt:  # Reading itself ends in order: see ``stopped_by_signals``.
        complain("Stopped")
        raise click.exceptions.Exit(SIGNAL_EXIT_OFFSET + signal.SIGINT) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of the command, as given."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    from_: str | None
    number: int | None
    until_end: bool
    isolation: Literal["read_committed", "read_uncommitted"]
    group: str | None
    raw: bool

    def request(self, session: Session) -> _Request:
        """Return what to read; raises ``click.BadParameter`` for a position that is none."""
        return _Request(
            config=self._config(session),
            topics=self.topics,
            only_partitions=self.partitions,
            position=self._position(),
            limit=self.number,
            until_end=self.until_end,
            timeout_seconds=session.timeout_seconds,
            show=choose_writer(
                session.output, raw=self.raw, encoding=sys.stdout.encoding, errors=sys.stdout.errors or "strict"
            ),
            head=TABLE_HEAD if session.output == "table" else None,
        )

    def _position(self) -> Position | None:
        try:
            return None if self.from_ is None else parse_position(self.from_)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--from") from None

    def _config(self, session: Session) -> ConsumerConfig:
        timeout_ms = math.ceil(session.timeout_seconds * 1000)
        return ConsumerConfig(
            bootstrap=",".join(map(str, session.bootstrap)),
            client_id="oncelog-cli",
            **asdict(session.security),
            group_id=self.group,
            isolation_level=self.isolation,
            auto_offset_reset="none" if self.group is None else "earliest",
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
        )
