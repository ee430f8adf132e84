"""The attacks, one after the other: each a coroutine that says how many inputs it sent and what became of them.

An attack sends what any client can send today. The broker may respond, refuse, or close the connection; what it may not
do is measured around it (``tests.hostile.stage``): pause, grow, log a traceback, hurt the clients beside it. What else
an attack finds wrong, it notes as a harm.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_response
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.topic_partition import TopicPartition
from tests.hostile import hostile_bytes as made
from tests.hostile.raw_connection import RawConnection
from tests.simulation import requests
from tests.simulation.wire_client import NoResponse, WireClient

PLAIN: Final = "hostile-plain"
COMPACTED: Final = "hostile-compacted"
STAMPED: Final = "hostile-stamped"
RECOMPRESSED: Final = "hostile-recompressed"
LARGE: Final = "hostile-large"
TOPICS: Final[dict[str, dict[str, str]]] = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    STAMPED: {"message.timestamp.type": "LogAppendTime"},
    RECOMPRESSED: {"compression.type": "gzip"},
    LARGE: {},
}
FORGED_TIMESTAMP: Final = requests.RECORD_TIMESTAMP + 1_000_000
"""Later than any record says; the maximum timestamp of a batch that lies."""
ESCAPES: Final = "\x1b[31m\x07\r\n2026-01-01 00:00:00,000 ERROR forged"
"""What must not reach a log as it is."""
_WITHIN_SECONDS: Final = 60.0


@dataclass(slots=True)
class Tally:
    """What was sent, and what became of it."""

    inputs: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    """Effects that no client may have, and how often."""

    def add(self, inputs: int, fate: str) -> None:
        self.inputs += inputs
        self.fates[fate] += 1

    def harm(self, effect: str) -> None:
        self.harms[effect] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the attacks are."""

    megabytes: int
    """Size of a request of many elements."""
    partitions: int
    """Of one CreateTopics."""
    connections: int
    """That crawl; ten times as many come and go."""
    non_readers: int
    """Connections that read no response."""
    pipelined: int
    """Requests sent in one piece."""
    bomb_bytes: int
    """Decompressed size of a batch."""
    repetitions: int
    sessions: int
    """Fetch sessions of unknown partitions."""
    together: int
    """Connections that each send a long request in the same moment; six times as many have creations judged."""
    elements: int
    """Of a long request: nearly as many as any API may have."""


FULL: Final = Scale(
    megabytes=10,
    partitions=10_000,
    connections=500,
    non_readers=1_000,
    pipelined=100_000,
    bomb_bytes=40_000_000,
    repetitions=10,
    sessions=40,
    together=50,
    elements=9_900,
)
SMALL: Final = Scale(
    megabytes=1,
    partitions=300,
    connections=40,
    non_readers=40,
    pipelined=2_000,
    bomb_bytes=2_000_000,
    repetitions=1,
    sessions=3,
    together=4,
    elements=900,
)
"""For every run of the tests."""


class Attacker:
    """The hostile client: a port, a scale, and what the attacks share."""

    def __init__(self, port: int, scale: Scale, seed: int) -> None:
        self.port = port
        self.scale = scale
        self.rng = random.Random(seed)
        self.tally = Tally()

    async def prepare(self) -> None:
        topics = [_topic(name, configs=configs) for name, configs in TOPICS.items()]
        client = await WireClient.connect(self.port, response_within=_WITHIN_SECONDS)
        await client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        client.close()

    async def send(self, data: bytes, *, inputs: int = 1, responses: int = 1) -> None:
        """Send bytes on a connection of their own; every request in them is responded to, or the connection ends."""
        async with await RawConnection.open(self.port) as connection:
            connection.send(data)
            received = await connection.receive(responses, _WITHIN_SECONDS)
        self.tally.add(inputs, "closed" if received.closed else "responded")

    async def produce(self, topic: str, batch: bytes) -> ErrorCode | None:
        """Produce one batch; None if the connection ended instead."""
        client = await WireClient.connect(self.port, response_within=_WITHIN_SECONDS)
        try:
            response = await client.call(requests.produce(TopicPartition(topic, 0), batch), 9)
        except NoResponse:
            if not client.closed:
                raise
            self.tally.add(1, "closed")
            return None
        finally:
            client.close()
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        self.tally.add(1, error.name)
        return error

    async def list_offsets(self, topic: str, timestamp: int) -> int:
        """The offset of the first record at or after a timestamp, or -1."""
        client = await WireClient.connect(self.port, response_within=_WITHIN_SECONDS)
        topics = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=timestamp)])]
        try:
            response = await client.call(ListOffsetsRequest(topics=topics), 7)
        finally:
            client.close()
        self.tally.add(1, "responded")
        offset: int = response.topics[0].partitions[0].offset
        return offset


def _topic(name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)


# Requests of many elements


async def many_groups(attacker: Attacker) -> None:
    for _ in range(attacker.scale.repetitions):
        await attacker.send(made.describe_empty_groups(attacker.scale.megabytes << 20))


async def many_topics(attacker: Attacker) -> None:
    for _ in range(attacker.scale.repetitions):
        await attacker.send(made.metadata_of_empty_names(attacker.scale.megabytes << 19))


async def many_tags(attacker: Attacker) -> None:
    for megabytes in (attacker.scale.megabytes, 9 * attacker.scale.megabytes):
        await attacker.send(made.tagged_header(megabytes << 20))


async def many_batches(attacker: Attacker) -> None:
    count = attacker.scale.megabytes * 13_500
    for topic in (PLAIN, "unknown"):
        for same_partition in (True, False):
            await attacker.send(made.produce_tiny_batches(topic, count, same_partition=same_partition))


async def many_partitions(attacker: Attacker) -> None:
    name = "hostile-wide"
    create = CreateTopicsRequest(topics=[_topic(name, attacker.scale.partitions)], timeout_ms=60_000)
    await attacker.send(made.request_frame(create, 5))
    await attacker.send(made.request_frame(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 4))


async def pipeline(attacker: Attacker) -> None:
    count = attacker.scale.pipelined
    await attacker.send(made.pipelined_api_versions(count), inputs=count, responses=count)


async def unknown_partitions(attacker: Attacker) -> None:
    data = made.fetch_session_of_unknown(attacker.scale.megabytes * 20_000)
    for _ in range(attacker.scale.sessions):
        await attacker.send(data)


# Long requests of many connections at once. None is above a limit: each has a response.


async def long_requests(attacker: Attacker) -> None:
    for data in made.long_requests(attacker.scale.elements):
        connections = [await RawConnection.open(attacker.port) for _ in range(attacker.scale.together)]
        for connection in connections:
            connection.send(data[:-1])
        await asyncio.sleep(0.5)  # The broker has received them but for the last byte.
        for connection in connections:
            connection.send(data[-1:])
        await _responses(attacker, connections, 1)


async def judged_creations(attacker: Attacker) -> None:
    """Small requests that are much work for the controller, and wait for nothing."""
    topics = [_topic(f"judged-{number}", attacker.scale.partitions // 5) for number in range(5)]
    create = CreateTopicsRequest(topics=topics, validate_only=True, timeout_ms=60_000)
    connections = [await RawConnection.open(attacker.port) for _ in range(6 * attacker.scale.together)]
    for connection in connections:
        connection.send(made.request_frame(create, 5) * 3)
    await _responses(attacker, connections, 3)


async def unread_descriptions(attacker: Attacker) -> None:
    """Requests whose responses are hundreds of times as large, by clients that do not read them."""
    data = made.describe_configs_of_groups(attacker.scale.elements * 19 // 10)
    connections = [await RawConnection.open(attacker.port) for _ in range(attacker.scale.together)]
    for connection in connections:
        connection.stop_reading()
        connection.send(data)
    await asyncio.sleep(attacker.scale.repetitions)  # As long as an attacker would watch the broker fill.
    attacker.tally.add(len(connections), "not read")
    await _abort(connections)


async def _responses(attacker: Attacker, connections: Iterable[RawConnection], count: int) -> None:
    for connection in connections:
        received = await connection.receive(count, _WITHIN_SECONDS)
        attacker.tally.add(count, "closed" if received.closed else "responded")
        if received.closed:
            attacker.tally.harm("a request within the limits was not responded to")
        async with connection:
            pass


# Batches that lie


async def header_bombs(attacker: Attacker) -> None:
    """Headers without end, on every kind of topic, and then a search by time through what was accepted."""
    for size in (attacker.scale.bomb_bytes, 6 * attacker.scale.bomb_bytes):
        bomb = made.header_bomb(size // 2, FORGED_TIMESTAMP)
        for topic in (PLAIN, COMPACTED, STAMPED, RECOMPRESSED):
            await attacker.produce(topic, bomb)
    for topic in (PLAIN, COMPACTED):
        await attacker.list_offsets(topic, FORGED_TIMESTAMP)


async def record_bombs(attacker: Attacker) -> None:
    bomb = made.record_bomb(attacker.scale.bomb_bytes // 40, FORGED_TIMESTAMP)
    for topic in (PLAIN, COMPACTED, STAMPED, RECOMPRESSED):
        await attacker.produce(topic, bomb)
    for _ in range(attacker.scale.repetitions):
        await attacker.list_offsets(PLAIN, FORGED_TIMESTAMP)


async def lying_counts(attacker: Attacker) -> None:
    for topic in TOPICS:
        for count in (2**31 - 1, 10**6, 1000):
            error = await attacker.produce(topic, made.counting_batch(count))
            if error is ErrorCode.NONE:
                attacker.tally.harm(f"a batch of 40 bytes that counts {count} records was appended to {topic}")


async def random_payloads(attacker: Attacker) -> None:
    for codec in Compression:
        for topic in (COMPACTED, STAMPED, RECOMPRESSED):
            for _ in range(20 * attacker.scale.repetitions):
                error = await attacker.produce(topic, made.random_payload(attacker.rng, codec))
                if error is ErrorCode.NONE:
                    attacker.tally.harm(f"{codec.name} noise was appended to {topic}, whose records are walked")


# Connections


async def never_reads(attacker: Attacker) -> None:
    """A long poll, and behind it fetches of everything, by clients that read nothing."""
    records = 60 * attacker.scale.megabytes // 10 or 1
    for _ in range(records):
        await attacker.produce(LARGE, made.incompressible_batch(attacker.rng, 1_000_000))
    data = made.long_poll_and_fetches(LARGE, records, 60)
    connections = [await RawConnection.open(attacker.port) for _ in range(attacker.scale.non_readers)]
    for connection in connections:
        connection.stop_reading()
        connection.send(data)
    for _ in range(attacker.scale.repetitions):
        await attacker.produce(LARGE, made.incompressible_batch(attacker.rng, 1000))  # Ends the long polls.
        await asyncio.sleep(1.0)  # As long as an attacker would watch the broker fill.
    attacker.tally.add(61 * len(connections), "not read")
    await _abort(connections)


async def begun_frames(attacker: Attacker) -> None:
    """Frames that claim 100 MB, of which five bytes come; then one byte after the other."""
    connections = [await RawConnection.open(attacker.port) for _ in range(attacker.scale.connections)]
    start = (100_000_000).to_bytes(4, "big")
    for connection in connections:
        connection.send(start + b"\0")
    for _ in range(20):
        await asyncio.sleep(0.05)  # The pace of a client that crawls.
        for connection in connections:
            if not connection.closed.done():
                connection.send(b"\0")
    attacker.tally.add(21 * len(connections), "crawled")
    await _abort(connections)


async def churn(attacker: Attacker) -> None:
    for _ in range(10 * attacker.scale.connections):
        async with await RawConnection.open(attacker.port) as connection:
            connection.send(b"\0\0")
    attacker.tally.add(10 * attacker.scale.connections, "left")


async def wrong_protocols(attacker: Attacker) -> None:
    """What other programs say to a port that they take for theirs."""
    greetings = (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500),
        b"\r\n\r\n",
    )
    for greeting in greetings * 20 * attacker.scale.repetitions:
        async with await RawConnection.open(attacker.port) as connection:
            connection.send(greeting)
            received = await connection.receive(1, _WITHIN_SECONDS)
        attacker.tally.add(1, "closed" if received.closed else "responded")
        if not received.closed:
            attacker.tally.harm(f"{greeting[:4]!r} was responded to")


async def _abort(connections: Iterable[RawConnection]) -> None:
    for connection in connections:
        async with connection:
            pass


# Groups and transactional ids


async def _await_coordinator(attacker: Attacker, key_type: int) -> None:
    """Until groups (0), or transactional ids (1), have a coordinator: their topics are created by the first request."""
    client = await WireClient.connect(attacker.port, response_within=_WITHIN_SECONDS)
    try:
        for _ in range(100):
            response = await client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
            if not response.coordinators[0].error_code:
                return
            await asyncio.sleep(0.1)
    finally:
        client.close()
    attacker.tally.harm("there is no coordinator")


async def _join(attacker: Attacker, group: str, metadata: bytes) -> None:
    async with await RawConnection.open(attacker.port) as connection:
        connection.send(made.join_bytes(group, metadata))
        await connection.receive(1, _WITHIN_SECONDS)
        if connection.responses:
            _, response = parse_response(JoinGroupResponse, 3, memoryview(connection.last_response))
            attacker.tally.add(1, ErrorCode(response.error_code).name)
        else:
            attacker.tally.add(1, "closed")


async def large_members(attacker: Attacker) -> None:
    """Members of groups of their own with as much metadata as is accepted, and with more."""
    await _await_coordinator(attacker, 0)
    for number in range(attacker.scale.connections // 2):
        await _join(attacker, f"hostile-large-{number}", bytes(1_000_000))
        if number % 10 == 0:
            await _join(attacker, f"hostile-huge-{number}", bytes(attacker.scale.megabytes * 1_500_000))


async def subscription_bombs(attacker: Attacker) -> None:
    """Members that subscribe to hundreds of thousands of topics, and to millions."""
    await _await_coordinator(attacker, 0)
    for number in range(attacker.scale.repetitions):
        for count in (500_000, attacker.scale.megabytes * 700_000):
            await _join(attacker, f"hostile-bomb-{number}", made.subscription_of_empty_names(count))


async def many_joins(attacker: Attacker) -> None:
    """Members of one group: ids that never come back, then members that wait for each other, on few connections."""
    await _await_coordinator(attacker, 0)
    count = attacker.scale.pipelined // 5
    await attacker.send(made.join_bytes("hostile-pending", b"", 4) * count, inputs=count, responses=count)
    connections = [await RawConnection.open(attacker.port) for _ in range(50)]
    joins = attacker.scale.pipelined // 10 // len(connections)
    for connection in connections:
        connection.send(made.join_bytes("hostile-parked", b"") * joins)
    for connection in connections:
        await connection.receive(joins, _WITHIN_SECONDS)
    attacker.tally.add(joins * len(connections), "joined")
    await _abort(connections)


async def long_transactional_ids(attacker: Attacker) -> None:
    """Ids of 30 kB, and ids of a kilobyte, which are kept."""
    await _await_coordinator(attacker, 1)
    for length, count in ((30_000, attacker.scale.pipelined // 50), (1_000, attacker.scale.pipelined // 20)):
        ids = (f"{number}-".ljust(length, "x") for number in range(count))
        data = b"".join(made.request_frame(requests.init_producer_id(each), 4) for each in ids)
        await attacker.send(data, inputs=count, responses=count)


# Names


async def poisoned_group(attacker: Attacker) -> None:
    """A member whose names fill a response; honest members of its group must still be able to join."""
    group = "hostile-group"
    for instance in ("i" * 32_767, "i" * 32_000, "ü" * 16_000):
        data = made.join_group(group, instance, client_id="c" * 32_767)
        async with await RawConnection.open(attacker.port) as poison, await RawConnection.open(attacker.port) as honest:
            poison.send(data)
            honest.send(made.join_group(group, "honest"))
            await honest.receive(1, _WITHIN_SECONDS)
            if honest.responses:
                _, response = parse_response(JoinGroupResponse, 8, memoryview(honest.last_response))
                if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    attacker.tally.harm("an honest member cannot join a group that was poisoned")
        attacker.tally.add(2, "joined")


async def forged_log_lines(attacker: Attacker) -> None:
    for text in (ESCAPES, "g" * 30_000 + ESCAPES):
        await attacker.send(made.join_group(text, None, client_id=text[:32_000], reason=text))
        await attacker.send(made.join_group("hostile-forger", text, client_id=text[:32_000], reason=text))


ATTACKS: Final[tuple[tuple[str, Callable[[Attacker], Awaitable[None]]], ...]] = (
    ("DescribeGroups of empty ids", many_groups),
    ("Metadata of empty names", many_topics),
    ("ApiVersions full of tags", many_tags),
    ("Produce of tiny batches", many_batches),
    ("CreateTopics of many partitions", many_partitions),
    ("requests in a pipeline", pipeline),
    ("fetch sessions of unknown partitions", unknown_partitions),
    ("long requests together", long_requests),
    ("creations that are judged", judged_creations),
    ("descriptions that are not read", unread_descriptions),
    ("bombs of headers", header_bombs),
    ("bombs of records", record_bombs),
    ("batches that count wrongly", lying_counts),
    ("random payloads", random_payloads),
    ("clients that never read", never_reads),
    ("frames that crawl", begun_frames),
    ("connections that come and go", churn),
    ("other protocols", wrong_protocols),
    ("large group members", large_members),
    ("bombs of subscriptions", subscription_bombs),
    ("many joins of one group", many_joins),
    ("long transactional ids", long_transactional_ids),
    ("a poisoned group", poisoned_group),
    ("forged log lines", forged_log_lines),
)
