"""``oncelog produce``: lines of standard input become records."""

import asyncio
import sys
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedReader
from random import Random
from typing import Any, Final, Literal, cast

import click

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.cli.arguments import parse_assignments
from oncelog.clients.cli.in_sync_replicas import InSyncReplicas
from oncelog.clients.cli.line_numbers import LineNumbers
from oncelog.clients.cli.line_producer import LineProducer, may_be_written
from oncelog.clients.cli.lines import LineFormat, LineSplitter, LineTooLong, SeparatorMissing
from oncelog.clients.cli.named_partitions import find_partitions, is_missing
from oncelog.clients.cli.remedies import remedy
from oncelog.clients.cli.session import NO_BROKER, REFUSED, Session, complain, example, wall_clock, with_session
from oncelog.clients.cli.signals import Heeded, stopped_by_signals
from oncelog.clients.cli.waiting import BROKERS_ADVICE, StillWaiting, Watch
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, DeliveryTimedOut, RecordTooLarge, Refusal
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.records.compression import Compression

_READ_BYTES: Final = 256 * 1024
_LARGEST_REQUEST: Final = 64 * 1024 * 1024
"""Bytes; far above the limits of brokers, so that theirs apply."""
_LINGER_MS: Final = 5
_CLOSE_SECONDS: Final = 0.2
"""Seconds after Ctrl-C or SIGTERM, after the wait for what was in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of the command, as given."""

    topic: str
    partition: int | None
    key: str | None
    key_separator: str | None
    headers: tuple[str, ...]
    acks: Literal["all", "1", "0"]
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    empty_as_null: bool

    def line_format(self) -> LineFormat:
        """Return how a line becomes a record; raises ``click.BadParameter`` for a header without a name."""
        return LineFormat(
            key=None if self.key is None else self.key.encode(),
            key_separator=self.key_separator.encode() if self.key_separator else None,
            headers=tuple(
                (name, value.encode()) for name, value in parse_assignments(self.headers, "--header").items()
            ),
            empty_is_null=self.empty_as_null,
        )

    def config(self, session: Session) -> ProducerConfig:
        """Return the producer's configuration, with the session's time-out for everything."""
        timeout_ms = max(1, int(session.timeout_seconds * 1000))
        return ProducerConfig(
            bootstrap=",".join(map(str, session.bootstrap)),
            client_id="oncelog-cli",
            **asdict(session.security),
            acks=self.acks,
            enable_idempotence=self.acks == "all",
            compression=self.compression,
            linger_ms=_LINGER_MS,
            max_request_bytes=_LARGEST_REQUEST,
            buffer_bytes=_LARGEST_REQUEST,
            max_block_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms + _LINGER_MS,
            connect_timeout_ms=timeout_ms,
        )


async def _read_input(over: asyncio.Event) -> bytes:
    """Return the next input as soon as there is some; empty at its end, and when ``over`` is set."""
    stream = cast(BufferedReader, sys.stdin.buffer)
    await _until_readable(stream, over)
    return b"" if over.is_set() else stream.read1(_READ_BYTES)


async def _until_readable(stream: BufferedReader, over: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def is_ready() -> None:
        if not readable.done():
            readable.set_result(None)

    try:
        descriptor = stream.fileno()
        loop.add_reader(descriptor, is_ready)
    except OSError:  # Not a pipe or a terminal: a file has no need to wait.
        return
    tasks = BackgroundTasks("oncelog produce")
    try:
        given_up = tasks.spawn(over.wait(), "until no more is to be read")
        await asyncio.wait({readable, given_up}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        await tasks.stop()


async def _produce_input(lines: LineProducer) -> None:
    await lines.producer.partitions_for(lines.topic)
    splitter = LineSplitter(_LARGEST_REQUEST)
    while data := await _read_input(lines.over):
        try:
            whole = splitter.feed(data)
        except LineTooLong as error:
            lines.lose(lines.lines_read + 1, RecordTooLarge(str(error)))
            lines.over.set()
            break
        await lines.send(whole)
    if not lines.over.is_set():
        await lines.send(splitter.finish())
    await lines.finish()


def _tell_first_failure(watch: Watch, replicas: InSyncReplicas, line: int, error: ClientError) -> None:
    had_no_response = isinstance(error, DeliveryTimedOut) and error.last_error is None
    if had_no_response and replicas.recent_cause is not None:
        why: StillWaiting | None = StillWaiting(f"{error}: {replicas.recent_cause}", BROKERS_ADVICE)
    else:
        why = None if isinstance(error, BrokerRefused) else watch.why(str(error))
    state = "acknowledged, and may be written" if may_be_written(error) else "written"
    complain(f"Error: line {line} is not {state}: {why or error}", advice_for(error) if why is None else why.advice)


def advice_for(error: ClientError) -> str | None:
    """Return the remedy for the error of a line; None if there is none to name."""
    if isinstance(error, SeparatorMissing):
        return "with --key as well, lines without a separator have that key"
    if isinstance(error, DeliveryTimedOut) and error.last_error is not None:
        return remedy(Refusal(error=error.last_error))
    return remedy(error.refusal) if isinstance(error, BrokerRefused) else None


def summary(lines: LineProducer) -> str:
    """Return how many lines are written, and which are not, or not known to be."""
    text = f"Error: {lines.written} written"
    if lines.lost.count:
        text += f", {lines.lost.count} not: {_lines(lines.lost)}"
    if lines.unsure.count:
        their = "its" if lines.unsure.count == 1 else "their"
        text += f", {lines.unsure.count} unknown: {_lines(lines.unsure)} may be written, only {their} acknowledgement "
        text += "is missing"
    return text + (f"; {_where_reading_stopped(lines)}" if lines.over.is_set() else "")


def _lines(numbers: LineNumbers) -> str:
    return f"line{'' if numbers.count == 1 else 's'} {numbers}"


def _where_reading_stopped(lines: LineProducer) -> str:
    return f"reading stopped after line {lines.lines_read}" if lines.lines_read else "no line was read"


@click.command(
    epilog=example(
        "echo 'hello' | oncelog produce greetings",
        "oncelog produce orders --key-separator : --acks all -z zstd < orders.txt",
    )
)
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(min=0),
    help="Partition of every record. Default: by key, or any for records without a key.",
)
@click.option("--key", "-k", help="Key of every record; with --key-separator only of lines without it.")
@click.option(
    "--key-separator",
    "-K",
    metavar="TEXT",
    help="Text between key and value in a line. A line without it is refused, unless --key is given for such lines.",
)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; repeatable."
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Acknowledgements required: all in-sync replicas, 1 (the leader) or 0.",
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option("--empty-as-null", "-Z", is_flag=True, help="Send empty values as null: tombstones in compacted topics.")
@with_session(
    timeout_help="Time to reach the cluster, and for each line to be acknowledged, in seconds. The command ends with "
    "its input."
)
def produce(session: Session, /, **given: Any) -> None:
    """Write each line of standard input as a record.

    With --acks all each line is written once, even if its acknowledgement is lost; with --acks 1 it may then be written
    twice, and with --acks 0 it may be lost. The exit code is 0 if all lines are written; otherwise the last line on
    standard error has the lines that are not, and those of which that is unknown. Ctrl-C and SIGTERM end the command
    within seconds, with the same summary.
    """
    options = _Options(**given)
    line_format = options.line_format()
    if sys.stdin is None:
        raise click.UsageError("standard input is closed: its lines are what is to be written")

    async def work(cluster: Cluster, watch: Watch) -> tuple[LineProducer, Heeded]:
        chosen = () if options.partition is None else (options.partition,)
        was_missing = await is_missing(cluster, options.topic)
        await find_partitions(cluster, {options.topic: chosen}, create=True)
        if was_missing and session.output != "json":
            complain(_about_creation(options.topic))
        async with session.cluster() as probe:
            producer = Producer(options.config(session), rng=Random(), wall_clock=wall_clock)
            replicas = InSyncReplicas(producer, probe, options.topic)
            watch.add(replicas)
            lines = LineProducer(
                producer=producer,
                topic=options.topic,
                partition=options.partition,
                format=line_format,
                now_ms=wall_clock,
                on_first_failure=partial(_tell_first_failure, watch, replicas),
            )
            return lines, await _produce_until_stopped(lines, replicas)

    lines, heeded = session.run_watched(work)
    _show(session, options.topic, lines)
    if heeded.exit_code is not None:
        raise click.exceptions.Exit(heeded.exit_code)
    if lines.has_failures:
        raise click.exceptions.Exit(NO_BROKER if lines.got_no_response else REFUSED)


def _about_creation(topic: str) -> str:
    return (
        f"Note: topic {topic} did not exist, and was created (auto.create.topics.enable); if its name is mistyped: "
        f"oncelog topic delete {topic}"
    )


async def _produce_until_stopped(lines: LineProducer, replicas: InSyncReplicas) -> Heeded:
    """Produce the lines of standard input, until they end or a signal stops it."""
    await lines.producer.start()
    tasks = BackgroundTasks("oncelog produce")
    tasks.spawn(lines.look_for_failures(), "look for lines that are lost")
    tasks.spawn(replicas.run(), "look for in-sync replicas that do not respond")
    try:
        with stopped_by_signals(lines.stop) as heeded:
            await lines.run(_produce_input(lines))
    finally:
        await tasks.stop()
        await lines.producer.close(_CLOSE_SECONDS if lines.is_stopped else None)
    return heeded


def _show(session: Session, topic: str, lines: LineProducer) -> None:
    rows = [
        {
            "topic": topic,
            "partition": index,
            "records": done.records,
            "first_offset": done.first_offset,
            "last_offset": done.last_offset,
        }
        for index, done in sorted(lines.progress.items())
    ]
    none = "No record is known to be written." if lines.unsure.count else "No records were written."
    session.show_rows(rows, ("partition", "records", "first_offset", "last_offset"), none=none)
    if lines.has_failures:
        complain(summary(lines))
    elif lines.is_stopped:
        complain(f"Stopped: {lines.written} written; {_where_reading_stopped(lines)}")
