"""``oncelog produce``: lines of standard input become records."""

import asyncio
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BufferedReader
from random import Random
from typing import Final, Literal, cast

import click

from clients.background_tasks import BackgroundTasks
from clients.cli.advertised_addresses import DOCTOR_ADVICE, AdvertisedUnreachable, explain_silence, unreachable_leaders
from clients.cli.arguments import parse_assignments
from clients.cli.lines import LineFormat, LineSplitter, LineTooLong
from clients.cli.session import Session, complain, example, wall_clock, with_session
from clients.cluster import Cluster
from clients.errors import (
    ClientError,
    DeliveryTimedOut,
    OperationTimedOut,
    OutcomeUnknown,
    RecordTooLarge,
    RequestTimedOut,
)
from clients.producer import FutureRecordMetadata, Producer, ProducerConfig
from protocol.records.compression import Compression

_READ_BYTES: Final = 256 * 1024
_LARGEST_REQUEST: Final = 64 * 1024 * 1024
"""Far above what brokers take, so that it is they who say how much is too much."""
_LINGER_MS: Final = 5


@dataclass(slots=True)
class _Progress:
    """What has been written to one partition."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def note(self, offset: int) -> None:
        self.records += 1
        if offset >= 0:
            self.first_offset = offset if self.first_offset is None else self.first_offset
            self.last_offset = offset


@dataclass(slots=True, kw_only=True)
class _LineProducer:
    """Sends lines, and keeps account of those that are acknowledged."""

    producer: Producer
    topic: str
    partition: int | None
    format: LineFormat
    progress: dict[int, _Progress] = field(default_factory=dict)
    under_way: deque[FutureRecordMetadata] = field(default_factory=deque)

    async def send(self, lines: Iterable[bytes]) -> None:
        """Send what was read; what a broker refuses raises here, or with a later line."""
        for line in lines:
            record = self.format.record(line, wall_clock())
            future = await self.producer.send(
                self.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=self.partition,
                timestamp_ms=record.timestamp,
            )
            self.under_way.append(future)
            while self.under_way and self.under_way[0].done():
                self._note(self.under_way.popleft())

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self.producer.flush()
        while self.under_way:
            self._note(self.under_way.popleft())

    def _note(self, future: FutureRecordMetadata) -> None:
        metadata = future.result()
        self.progress.setdefault(metadata.partition, _Progress()).note(metadata.offset)


def _config(session: Session, acks: Literal["all", "1", "0"], compression: str) -> ProducerConfig:
    timeout_ms = max(1, int(session.timeout_seconds * 1000))
    return ProducerConfig(
        bootstrap=",".join(map(str, session.bootstrap)),
        client_id="oncelog-cli",
        acks=acks,
        enable_idempotence=acks == "all",
        compression=cast(Literal["none", "gzip", "snappy", "lz4", "zstd"], compression),
        linger_ms=_LINGER_MS,
        max_request_bytes=_LARGEST_REQUEST,
        buffer_bytes=_LARGEST_REQUEST,
        max_block_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        delivery_timeout_ms=timeout_ms + _LINGER_MS,
        connect_timeout_ms=timeout_ms,
    )


async def _read_input() -> bytes:
    """What is there, as soon as something is; empty at the end."""
    stream = cast(BufferedReader, sys.stdin.buffer)
    await _until_readable(stream)
    return stream.read1(_READ_BYTES)


async def _until_readable(stream: BufferedReader) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        descriptor = stream.fileno()
        loop.add_reader(descriptor, readable.set)
    except OSError:  # Not a pipe or a terminal: a file has no need to wait.
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


async def _produce_input(producer: _LineProducer) -> None:
    await producer.producer.partitions_for(producer.topic)
    lines = LineSplitter(_LARGEST_REQUEST)
    while data := await _read_input():
        try:
            whole = lines.feed(data)
        except LineTooLong as error:
            raise RecordTooLarge(str(error)) from error
        await producer.send(whole)
    await producer.send(lines.finish())
    await producer.finish()


async def _warn_of_silence(cluster: Cluster, lines: _LineProducer) -> None:
    reason = await explain_silence(cluster, [lines.topic], lambda: bool(lines.under_way) and not lines.progress)
    if reason is not None:
        complain(f"Warning: nothing is acknowledged yet: {reason}", DOCTOR_ADVICE)


async def _explained(error: ClientError, cluster: Cluster, topic: str) -> ClientError:
    try:
        unreachable = await unreachable_leaders(cluster, [topic])
    except ClientError:
        unreachable = []
    return AdvertisedUnreachable("; ".join([str(error), *unreachable])) if unreachable else RequestTimedOut(str(error))


@click.command(
    epilog=example(
        "echo 'hello' | oncelog produce greetings",
        "oncelog produce orders --key-separator : --acks all -z zstd < orders.txt",
    )
)
@click.argument("topic", metavar="TOPIC")
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Default: by key, or any for records without.")
@click.option("--key", "-k", help="The key of every record.")
@click.option("--key-separator", "-K", metavar="TEXT", help="What stands between key and value in a line.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record.")
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True, help="Who must have it."
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option("--empty-as-null", "-Z", is_flag=True, help="Send empty values as null: tombstones in compacted topics.")
@with_session()
def produce(
    session: Session,
    topic: str,
    partition: int | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    acks: Literal["all", "1", "0"],
    compression: str,
    empty_as_null: bool,
) -> None:
    """Write each line of standard input as a record.

    With --acks all each is written once, even if its acknowledgement is lost; with --acks 1 it may then be there twice,
    and with --acks 0 not at all.
    """
    line_format = LineFormat(
        key=None if key is None else key.encode(),
        key_separator=key_separator.encode() if key_separator else None,
        headers=tuple((name, value.encode()) for name, value in parse_assignments(headers, "--header").items()),
        empty_is_null=empty_as_null,
    )

    if sys.stdin is None:
        raise click.UsageError("standard input is closed: its lines are what is to be written")

    async def work(cluster: Cluster) -> dict[int, _Progress]:
        async with Producer(_config(session, acks, compression), rng=Random(), wall_clock=wall_clock) as producer:
            lines = _LineProducer(producer=producer, topic=topic, partition=partition, format=line_format)
            tasks = BackgroundTasks("oncelog produce")
            tasks.spawn(_warn_of_silence(cluster, lines), "look at silent leaders")
            try:
                await _produce_input(lines)
            except (DeliveryTimedOut, OperationTimedOut, OutcomeUnknown) as error:
                raise await _explained(error, cluster, topic) from error
            finally:
                await tasks.stop()
            return lines.progress

    rows = [
        {
            "topic": topic,
            "partition": index,
            "records": done.records,
            "first_offset": done.first_offset,
            "last_offset": done.last_offset,
        }
        for index, done in sorted(session.run(work).items())
    ]
    session.show_rows(rows, ("partition", "records", "first_offset", "last_offset"))
