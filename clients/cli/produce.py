"""``oncelog produce``: lines of standard input become records."""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Final, cast

import click

from clients.cli.arguments import parse_assignments
from clients.cli.lines import LineFormat, LineSplitter
from clients.cli.session import Session, example, wall_clock, with_session
from clients.cluster import Cluster
from clients.errors import BrokerRefused, Refusal, error_code
from clients.producer.batch_sender import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    send_batches,
    send_batches_unacknowledged,
)
from clients.producer.partitioner import partition_for_key
from protocol.records.compression import Compression
from protocol.records.record_batch import NewRecord, build_batch
from protocol.topic_partition import TopicPartition

_ACKS: Final = {"all": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}
_READ_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class _Progress:
    """What has been written to one partition."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True, kw_only=True)
class _LineProducer:
    """Sends the lines of one read as one batch for each partition, and waits for the answers before the next read."""

    cluster: Cluster
    topic: str
    partition: int | None
    acks: int
    compression: Compression
    format: LineFormat
    partition_count: int = 0
    progress: dict[int, _Progress] = field(default_factory=dict)

    async def send(self, lines: Iterable[bytes]) -> None:
        batches = self._batches(lines)
        encoded = {
            TopicPartition(self.topic, index): build_batch(records, compression=self.compression)
            for index, records in batches.items()
        }
        if self.acks == ACKS_NONE:
            await send_batches_unacknowledged(self.cluster, encoded)
            for index, records in batches.items():
                self.progress.setdefault(index, _Progress()).records += len(records)
            return
        answers = await send_batches(self.cluster, encoded, acks=self.acks)
        for tp, written in answers.found.items():
            self._note(tp.partition, len(batches[tp.partition]), written.base_offset)
        for tp, error in answers.failed.items():
            raise BrokerRefused(str(tp), Refusal(error=error))

    def _batches(self, lines: Iterable[bytes]) -> dict[int, list[NewRecord]]:
        partitions = self.partition_count
        without_key = self.cluster.rng.randrange(partitions) if self.partition is None else self.partition
        now_ms = wall_clock()
        batches: dict[int, list[NewRecord]] = {}
        for line in lines:
            record = self.format.record(line, now_ms)
            by_key = self.partition is None and record.key is not None
            index = partition_for_key(record.key or b"", partitions) if by_key else without_key
            batches.setdefault(index, []).append(record)
        return batches

    async def find_topic(self) -> None:
        """Learn how many partitions there are; raises ``BrokerRefused`` if the one that was named is none of them."""
        topic = (await self.cluster.topics([self.topic], create=True))[self.topic]
        if topic.error_code:
            raise BrokerRefused(f"topic {self.topic}", Refusal(error=error_code(topic.error_code)))
        self.partition_count = len(topic.partitions)

    def _note(self, index: int, count: int, base_offset: int) -> None:
        progress = self.progress.setdefault(index, _Progress())
        progress.records += count
        progress.first_offset = base_offset if progress.first_offset is None else progress.first_offset
        progress.last_offset = base_offset + count - 1


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
    await producer.find_topic()
    lines = LineSplitter()
    while data := await _read_input():
        whole = lines.feed(data)
        if whole:
            await producer.send(whole)
    last = list(lines.finish())
    if last:
        await producer.send(last)


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
    acks: str,
    compression: str,
    empty_as_null: bool,
) -> None:
    """Write each line of standard input as a record.

    Each is written at least once: one whose acknowledgement is lost is written again.
    """
    line_format = LineFormat(
        key=None if key is None else key.encode(),
        key_separator=key_separator.encode() if key_separator else None,
        headers=tuple((name, value.encode()) for name, value in parse_assignments(headers, "--header").items()),
        empty_is_null=empty_as_null,
    )

    async def work(cluster: Cluster) -> dict[int, _Progress]:
        producer = _LineProducer(
            cluster=cluster,
            topic=topic,
            partition=partition,
            acks=_ACKS[acks],
            compression=Compression[compression.upper()],
            format=line_format,
        )
        await _produce_input(producer)
        return producer.progress

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
