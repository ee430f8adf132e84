"""What cannot be written is refused at the call, and costs nobody else anything."""

import asyncio
import math
import re
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncelog.clients.consumer import ConsumerConfig
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer import ProducerConfig
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import Record, iter_records, read_header
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.producer.producing_brokers import TOPIC, Stage

GROUP = ConsumerGroupMetadata(group_id="readers", generation_id=3, member_id="me")
INPUT = TopicPartition("input", 0)

BYTES_LIKE = {
    "bytearray": bytearray(b"abc"),
    "view": memoryview(b"abc"),
    "view of every other byte": memoryview(b"a.b.c")[::2],
    "signed bytes": array("b", b"abc"),
    "long": bytearray(10_000),
}
NOT_BYTES = {
    "shorts": array("h", [1, 2, 3]),
    "ints": array("i", range(50)),
    "view of ints": memoryview(array("i", range(50))),
    "doubles": array("d", [1.0]),
    "rows": memoryview(b"abcdef").cast("B", (2, 3)),
    "str": "text",
    "int": 5,
    "list": [1, 2],
}


def read(batch: ProducerBatch) -> list[Record]:
    encoded = bytes(batch.encode(Compression.NONE))
    return list(iter_records(encoded, 0, read_header(encoded), max_decompressed_bytes=1_000_000))


def placed(place: str, data: Any) -> tuple[Any, Any, Any]:
    """Key, value and headers with ``data`` in one place."""
    match place:
        case "key":
            return data, b"value", ()
        case "value":
            return None, data, ()
        case "value with key":
            return b"key", data, ()
        case _:
            return None, b"value", [("name", data)]


PLACES = ("key", "value", "value with key", "header")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", BYTES_LIKE)
def test_buffer_of_bytes_anywhere_is_stored_as_its_bytes(place: str, kind: str) -> None:
    data = BYTES_LIKE[kind]
    batch = ProducerBatch(INPUT, 100_000, 0, 0.0)
    for fields in (placed("value", b"before"), placed(place, data), placed("value", b"after")):
        assert batch.append(0, *fields)
    before, between, after = read(batch)
    assert (before.value, after.value) == (b"before", b"after")
    key, value, headers = placed(place, bytes(data))
    assert (between.key, between.value, list(between.headers)) == (key, value, list(headers))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", NOT_BYTES)
def test_value_that_is_no_buffer_of_bytes_is_refused_and_the_batch_unchanged(place: str, kind: str) -> None:
    batch = ProducerBatch(INPUT, 100_000, 0, 0.0)
    assert batch.append(0, *placed("value", b"before"))
    with pytest.raises(TypeError, match="must be"):
        batch.append(0, *placed(place, NOT_BYTES[kind]))
    assert batch.append(0, *placed("value", b"after"))
    assert [record.value for record in read(batch)] == [b"before", b"after"]


BAD_RECORDS: dict[str, dict[str, Any]] = {
    "timestamp above 63 bits": {"timestamp_ms": 2**63},
    "timestamp below 0": {"timestamp_ms": -1},
    "timestamp that is no int": {"timestamp_ms": 1.5},
    "partition below 0": {"partition": -1},
    "partition above 31 bits": {"partition": 2**31},
    "partition that is no int": {"partition": 0.5},
    "value of ints": {"value": array("i", [1])},
    "key of ints": {"key": array("i", [1])},
    "header of ints": {"headers": [("name", array("i", [1]))]},
    "header with half a character": {"headers": [("\ud800", b"")]},
    "header without value": {"headers": [("name",)]},
    "header name of bytes": {"headers": [(b"name", b"")]},
    "topic with half a character": {"topic": "\ud800"},
    "topic that is too long": {"topic": "x" * 40_000},
    "topic that is no str": {"topic": 5},
}
BAD_OFFSETS: dict[str, Any] = {
    "offset above 63 bits": {INPUT: OffsetAndMetadata(2**63)},
    "offset below 0": {INPUT: OffsetAndMetadata(-1)},
    "leader epoch above 31 bits": {INPUT: OffsetAndMetadata(5, 2**31)},
    "metadata that is too long": {INPUT: OffsetAndMetadata(5, metadata="x" * 40_000)},
    "metadata with half a character": {INPUT: OffsetAndMetadata(5, metadata="\ud800")},
    "partition above 31 bits": {TopicPartition("input", 2**31): OffsetAndMetadata(5)},
    "partition that is no int": {TopicPartition("input", "0"): OffsetAndMetadata(5)},  # type: ignore[arg-type]
    "topic with half a character": {TopicPartition("\ud800", 0): OffsetAndMetadata(5)},
}
BAD_GROUPS = {
    "no name": ConsumerGroupMetadata(group_id=""),
    "name that is too long": ConsumerGroupMetadata(group_id="x" * 40_000),
    "generation above 31 bits": ConsumerGroupMetadata(group_id="x", generation_id=2**31, member_id="me"),
    "generation without member": ConsumerGroupMetadata(group_id="x", generation_id=1),
    "instance with half a character": ConsumerGroupMetadata(group_id="x", group_instance_id="\ud800"),
}


async def refused(call: Callable[[], Awaitable[object]]) -> None:
    started = asyncio.get_running_loop().time()
    with pytest.raises((TypeError, ValueError)):
        await call()
    assert asyncio.get_running_loop().time() == started


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
@pytest.mark.parametrize("kind", BAD_RECORDS)
@in_virtual_time
async def test_record_that_cannot_be_written_is_refused_and_others_of_the_batch_are_written(
    kind: str, known: bool
) -> None:
    stage = Stage(partitions=1)
    async with stage.transacting() as producer:
        if known:
            await producer.send(TOPIC, b"before")
        record = {"topic": TOPIC, "value": b"value", **BAD_RECORDS[kind]}
        if known or kind != "header with half a character":
            await refused(lambda: producer.send(**record))
        else:  # A header is encoded when its topic is known.
            with pytest.raises(ValueError, match="surrogates"):
                await producer.send(**record)
        await producer.send(TOPIC, b"after")
        await producer.commit_transaction()
    assert stage.values() == ([b"before", b"after"] if known else [b"after"])


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"key": 7}, "the key must be bytes, not int"),
        ({"key": "k"}, "the key must be bytes, not str: encode it"),
        ({"value": 3}, "the value must be bytes, not int"),
        ({"value": "v", "key": b"k"}, "the value must be bytes, not str: encode it"),
        ({"headers": {"ab": b"c"}}, "headers must be (name, value) pairs, not a mapping: pass list(headers.items())"),
        ({"headers": 5}, "headers must be a sequence of (name, value) pairs, not int"),
        ({"headers": ["ab"]}, "a header must be a (name, value) pair, not str"),
        ({"headers": [("ab", "c")]}, "header 'ab' must be bytes, not str"),
        ({"partition": "0"}, "partition must be int, not str"),
        ({"partition": 0.0}, "partition must be int, not float"),
        ({"timestamp_ms": "0"}, "timestamp_ms must be int, not str"),
        ({"topic": 7}, "topic must be str, not int"),
        ({"topic": [TOPIC]}, "topic must be str, not list"),
    ],
)
@in_virtual_time
async def test_argument_of_another_type_is_named_before_any_request(
    record: dict[str, Any], text: str, known: bool
) -> None:
    stage = Stage(partitions=1)
    async with stage.producing() as producer:
        if known:
            await producer.partitions_for(TOPIC)
        seen = len(stage.broker.seen(MetadataRequest))
        arguments = {"topic": TOPIC, "value": b"value", **record}
        with pytest.raises(TypeError, match=f"^{re.escape(text)}") as sent:
            await producer.send(**arguments)
        with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
            producer.send_nowait(**arguments)
        assert sent.value.__suppress_context__ or sent.value.__context__ is None
        assert len(stage.broker.seen(MetadataRequest)) == seen
    assert stage.values() == []


@in_virtual_time
async def test_type_error_of_a_partitioner_is_raised_as_it_is() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(partitioner=lambda *_: len(3)) as producer:  # type: ignore[arg-type]
        await producer.partitions_for(TOPIC)
        with pytest.raises(TypeError, match=r"object of type 'int' has no len"):
            await producer.send(TOPIC, b"value")


@pytest.mark.parametrize(
    ("offsets", "group", "text"),
    [
        ({INPUT: 3}, GROUP, "the offset of input-0 must be OffsetAndMetadata, not int: pass OffsetAndMetadata(offset)"),
        ([INPUT], GROUP, "offsets must be a mapping of TopicPartition to OffsetAndMetadata, not list"),
        ({"input": OffsetAndMetadata(3)}, GROUP, "a partition must be a TopicPartition, not str"),
        ({INPUT: OffsetAndMetadata(3)}, "readers", "group must be ConsumerGroupMetadata, not str"),
    ],
)
@in_virtual_time
async def test_offsets_of_another_type_are_named(offsets: Any, group: Any, text: str) -> None:
    async with Stage(partitions=1).transacting() as producer:
        with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
            await producer.send_offsets_to_transaction(offsets, group)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"acks": [1]}, "ProducerConfig: acks must be str or int, not list"),
        ({"acks": True}, "ProducerConfig: acks must be str or int, not bool"),
        ({"batch_bytes": "5"}, "ProducerConfig: batch_bytes must be int, not str"),
        ({"compression": None}, "ProducerConfig: compression must be str, not NoneType"),
        ({"linger_ms": "5"}, "ProducerConfig: linger_ms must be a number, not str"),
        ({"partitioner": 3}, "ProducerConfig: partitioner must be a function or None, not int"),
        ({"enable_idempotence": "no"}, "ProducerConfig: enable_idempotence must be bool, not str"),
        ({"transactional_id": 7}, "ProducerConfig: transactional_id must be str or None, not int"),
    ],
)
def test_setting_of_another_type_raises_type_error_that_names_it(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ProducerConfig(**{"bootstrap": "x", **settings})


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("kind", [*BAD_OFFSETS, *BAD_GROUPS])
@in_virtual_time
async def test_offsets_that_cannot_be_committed_are_refused_and_the_transaction_goes_on(
    kind: str, protocol: int
) -> None:
    stage = Stage(partitions=1, transaction_version=protocol)
    async with stage.transacting() as producer:
        await producer.send(TOPIC, b"value")
        offsets = BAD_OFFSETS.get(kind, {INPUT: OffsetAndMetadata(5)})
        await refused(lambda: producer.send_offsets_to_transaction(offsets, BAD_GROUPS.get(kind, GROUP)))
        await producer.send_offsets_to_transaction({INPUT: OffsetAndMetadata(5)}, GROUP)
        await producer.commit_transaction()
    assert stage.values() == [b"value"]


@pytest.mark.parametrize("chosen", [-1, 1, 2**40, "0"])
@in_virtual_time
async def test_partitioner_that_names_no_partition_fails_its_call_only(chosen: Any) -> None:
    stage = Stage(partitions=1)
    choices = [0, chosen, 0]
    async with stage.producing(partitioner=lambda *_: choices.pop(0)) as producer:
        await producer.partitions_for(TOPIC)
        await producer.send(TOPIC, b"before")
        await refused(lambda: producer.send(TOPIC, b"value"))
        await producer.send(TOPIC, b"after")
    assert stage.values() == [b"before", b"after"]


@pytest.mark.parametrize(
    "settings",
    [
        {"transaction_timeout_ms": 2**31},
        {"transaction_timeout_ms": 1.5},
        {"transaction_timeout_ms": 0},
        {"delivery_timeout_ms": math.inf},
        {"delivery_timeout_ms": math.nan},
        {"max_block_ms": math.inf},
        {"connect_timeout_ms": -1},
        {"linger_ms": math.nan},
        {"retry_backoff_ms": 0},
        {"request_timeout_ms": 2**31, "delivery_timeout_ms": 2**32},
        {"client_id": "\ud800"},
        {"transactional_id": "\ud800"},
        {"transactional_id": "x" * 40_000},
    ],
)
def test_settings_that_no_request_can_hold_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        ProducerConfig(bootstrap="x", **settings)


@pytest.mark.parametrize(
    ("acks", "meant"), [("all", "all"), ("-1", "all"), (-1, "all"), ("1", "1"), (1, "1"), ("0", "0"), (0, "0")]
)
def test_acks_are_spelt_as_in_any_client(acks: Any, meant: str) -> None:
    assert ProducerConfig(bootstrap="x", acks=acks, enable_idempotence=False).acks == meant


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"acks": 2}, "acks must be all, 1 or 0, not 2"),
        ({"acks": "2"}, "acks must be all, 1 or 0, not '2'"),
        ({"acks": 1}, "acks is 1: it must be all unless enable_idempotence=False"),
        ({"compression": "zip"}, "compression must be none, gzip, snappy, lz4 or zstd, not 'zip'"),
    ],
)
def test_wrong_choice_is_refused_with_its_value_and_the_valid_ones(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        ProducerConfig(bootstrap="x", **settings)


@pytest.mark.parametrize(
    ("config", "name", "meant"),
    [
        (ProducerConfig, "bootstrap_servers", "bootstrap"),
        (ProducerConfig, "bootstrap.servers", "bootstrap"),
        (ProducerConfig, "compression_type", "compression"),
        (ProducerConfig, "max_in_flight_requests_per_connection", "max_in_flight"),
        (ProducerConfig, "transaction_id", "transactional_id"),
        (ConsumerConfig, "bootstrap_servers", "bootstrap"),
        (ConsumerConfig, "group.id", "group_id"),
        (ConsumerConfig, "auto_offset_rest", "auto_offset_reset"),
    ],
)
def test_unknown_setting_is_refused_with_the_one_that_was_meant(config: type[Any], name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"has no setting {name}: did you mean {meant}?")):
        config(**{name: "x"})


def test_unknown_setting_that_is_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(TypeError, match=r"has no setting zzz; there are acks, .*transactional_id"):
        ProducerConfig(bootstrap="x", zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5, "1"], ids=str)
def test_close_within_a_time_that_is_not_finite_or_is_negative_is_refused_and_closes_nothing(bad: Any) -> None:
    @in_virtual_time
    async def play() -> None:
        async with Stage().producing() as producer:
            with pytest.raises((ValueError, TypeError), match="timeout_seconds"):
                await producer.close(bad)
            await (await producer.send(TOPIC, b"value"))

    play()
