"""A version-1 batch that its client has given up arrives in the next transaction: same epoch, and the next sequence."""

import asyncio
from collections.abc import Sequence

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.greeted_client import greeted
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests
from tests.simulation.wire_client import WireClient

CHALLENGED = ErrorCode.NOT_ENOUGH_REPLICAS
NONE = ErrorCode.NONE
BACKOFF_SECONDS = 0.1


class Writer:
    """Writes batches of a producer over a connection, and does not repeat what is refused."""

    def __init__(self, client: WireClient, producer: ScriptedProducer, partition: TopicPartition) -> None:
        self.client = client
        self.producer = producer
        self.partition = partition

    async def write(self, sequence: int, value: bytes) -> ErrorCode:
        (error,) = await self.write_at_once((sequence, value))
        return error

    async def write_at_once(self, *batches: tuple[int, bytes]) -> Sequence[ErrorCode]:
        """Have all of them in flight together."""
        written = [
            requests.produce(
                self.partition,
                self.producer.batch(self.partition, value, sequence=sequence),
                transactional_id=self.producer.transactional_id,
            )
            for sequence, value in batches
        ]
        sent = [self.client.send(request, requests.PRODUCE_VERSION) for request in written]
        errors = []
        for request, frame in zip(written, sent, strict=True):
            response = await self.client.response_to(request, requests.PRODUCE_VERSION, frame)
            errors.append(ErrorCode(response.responses[0].partition_responses[0].error_code))
        if CHALLENGED in errors:
            await asyncio.sleep(BACKOFF_SECONDS)
        return errors


async def second_transaction(
    stage: Stage, partition: TopicPartition, *, first_batch: Sequence[bytes] = (), aborts: bool = True
) -> tuple[ScriptedProducer, Writer]:
    """A producer whose first transaction has ended and whose second has the partition, and its first connection."""
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(partition))
    writer = Writer(await greeted(stage), producer, partition)
    for sequence, value in enumerate(first_batch):
        assert await writer.write(sequence, value) is NONE
    ok(await producer.end(commit=not aborts))
    ok(await producer.add(partition))
    return producer, writer


@scenario()
async def test_batch_that_was_given_up_is_not_appended_in_the_next_transaction(stage: Stage) -> None:
    """B111: neither with batches of the aborted transaction in the log, nor if it was its first one."""
    for partition, before in zip(await stage.create_topic("invoices", 2), ([], [b"aborted"]), strict=True):
        producer, _ = await second_transaction(stage, partition, first_batch=before)
        late, live = (
            Writer(await stage.connect(), producer, partition),
            Writer(await stage.connect(), producer, partition),
        )
        assert await late.write(len(before), b"given up") is CHALLENGED
        assert [await live.write(len(before), b"kept") for _ in range(2)] == [CHALLENGED, NONE]
        ok(await producer.end(commit=True))
        assert await stage.committed(partition) == [b"kept"]


@scenario()
async def test_batch_that_was_given_up_by_the_owner_is_not_appended_after_an_abort(stage: Stage) -> None:
    """B111: the client comes back over another connection, which has not written yet."""
    (invoices,) = await stage.create_topic("invoices")
    producer, given_up = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert await given_up.write(1, b"given up") is CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == []


@scenario()
async def test_batch_behind_one_that_was_given_up_is_no_repetition(stage: Stage) -> None:
    """B111: a producer has several batches in flight, and their numbers differ."""
    (invoices,) = await stage.create_topic("invoices")
    producer, late = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert await late.write(1, b"given up") is CHALLENGED
    assert await late.write(2, b"given up, too") is CHALLENGED
    live = Writer(await stage.connect(), producer, invoices)
    assert [await live.write(1, b"kept") for _ in range(2)] == [CHALLENGED, NONE]
    assert await late.write(2, b"given up, too") is CHALLENGED
    assert await live.write(2, b"kept, too") is NONE
    assert await late.write(3, b"given up as well") is CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept", b"kept, too"]


@scenario()
async def test_batches_that_were_given_up_in_one_write_are_not_appended(stage: Stage) -> None:
    """B111: the second was sent before the response to the first."""
    (invoices,) = await stage.create_topic("invoices")
    producer, late = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert await late.write_at_once(*[(1, b"given up")] * 3) == [CHALLENGED] * 3
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == []


@scenario()
async def test_connection_that_is_newer_than_the_leadership_needs_no_repetition(stage: Stage) -> None:
    """So a client whose connections break again and again gets on. An older one may have been a leader's."""
    old = await stage.connect()
    (invoices,) = await stage.create_topic("invoices")
    await asyncio.sleep(2.0)
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"first"], aborts=False)
    for sequence in (1, 2, 3):
        live = Writer(await stage.connect(), producer, invoices)
        assert await live.write(sequence, b"kept") is NONE
    assert await Writer(old, producer, invoices).write(4, b"given up") is CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"first"] + [b"kept"] * 3


@scenario()
async def test_connection_that_is_newer_than_an_abort_is_not_trusted(stage: Stage) -> None:
    """B111: its client may have sent the batch before, while the packet was lost that ends the handshake."""
    (invoices,) = await stage.create_topic("invoices")
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    await asyncio.sleep(10.0)
    late = Writer(await stage.connect(), producer, invoices)
    assert await late.write(1, b"given up") is CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == []


@scenario()
async def test_batch_that_was_given_up_is_not_appended_to_a_topic_that_was_created_again(stage: Stage) -> None:
    """B111: the marker that ended its transaction has gone with the log."""
    (invoices,) = await stage.create_topic("invoices")
    producer, given_up = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    ok(await producer.end(commit=False))
    await stage.delete_topic("invoices")
    (invoices,) = await stage.create_topic("invoices")
    ok(await producer.add(invoices))
    assert await given_up.write(1, b"given up") is CHALLENGED
    assert await Writer(await greeted(stage), producer, invoices).write(1, b"kept") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept"]


@scenario(settings={"producer.id.expiration.ms": "60000", "connections.max.idle.ms": "-1"})
async def test_batch_that_was_given_up_is_not_appended_after_its_producer_was_forgotten(stage: Stage) -> None:
    """B111: with the producer's state, it is forgotten that it has aborted."""
    (invoices,) = await stage.create_topic("invoices")
    producer, given_up = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    ok(await producer.end(commit=False))
    young = Writer(await stage.connect(), producer, invoices)
    await asyncio.sleep(1_800.0)
    ok(await producer.add(invoices))
    assert [await late.write(1, b"given up") for late in (given_up, young)] == [CHALLENGED] * 2
    assert await Writer(await greeted(stage), producer, invoices).write(1, b"kept") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept"]


@scenario()
async def test_client_is_not_trusted_by_its_name(stage: Stage) -> None:
    """B111: librdkafka and the Java client may use a number again, or leave a gap that a late batch fills."""
    (invoices,) = await stage.create_topic("invoices")
    names = ("librdkafka", "kgo", "apache-kafka-java", "oncelog")
    hellos = [ApiVersionsRequest(client_software_name=name, client_software_version="1") for name in names]
    former = [await greeted(stage, hello) for hello in hellos]
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert [await Writer(client, producer, invoices).write(1, b"late") for client in former] == [CHALLENGED] * 4
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == []


@scenario()
async def test_batches_in_flight_over_a_new_connection_are_repeated_in_order(stage: Stage) -> None:
    """B111: those behind the challenged one are not refused as out of order, which clients may take for a loss."""
    (invoices,) = await stage.create_topic("invoices")
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    batches = [(1, b"a"), (2, b"b"), (3, b"c")]
    live = Writer(await stage.connect(), producer, invoices)
    assert await live.write_at_once(*batches) == [CHALLENGED] * 3
    assert await live.write_at_once(*batches) == [NONE] * 3
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c"]


@scenario()
async def test_session_over_one_connection_repeats_nothing_but_after_an_abort(stage: Stage) -> None:
    (invoices,) = await stage.create_topic("invoices")
    producer, writer = await second_transaction(stage, invoices, first_batch=[b"a", b"b"], aborts=False)
    assert [await writer.write(2, b"c"), await writer.write(3, b"d")] == [NONE, NONE]
    ok(await producer.end(commit=False))
    ok(await producer.add(invoices))
    assert [await writer.write(4, b"e"), await writer.write(4, b"e")] == [CHALLENGED, NONE]
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"e"]


@scenario()
async def test_duplicate_over_a_new_connection_gets_the_response_of_the_first_time(stage: Stage) -> None:
    """The next batch over that connection has to be repeated: a duplicate may be late."""
    (invoices,) = await stage.create_topic("invoices")
    producer, former = await second_transaction(stage, invoices, first_batch=[b"a"], aborts=False)
    assert await former.write(1, b"b") is NONE
    live = Writer(await stage.connect(), producer, invoices)
    assert await live.write(1, b"b") is NONE
    assert [await live.write(2, b"c") for _ in range(2)] == [CHALLENGED, NONE]
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c"]


@scenario()
async def test_late_batch_does_not_hold_back_the_next_one_of_its_producer(stage: Stage) -> None:
    """It comes when no transaction is open, or when the next one has the partition."""
    (invoices,) = await stage.create_topic("invoices")
    producer, writer = await second_transaction(stage, invoices, first_batch=[b"a"], aborts=False)
    late = Writer(await stage.connect(), producer, invoices)
    assert await late.write(0, b"a") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await writer.write(1, b"b") is NONE
    ok(await producer.end(commit=True))
    assert await late.write(1, b"b") is ErrorCode.INVALID_TXN_STATE
    ok(await producer.add(invoices))
    assert await writer.write(2, b"c") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c"]


@scenario()
async def test_batch_with_a_number_of_an_aborted_transaction_is_no_duplicate(stage: Stage) -> None:
    """B111: its client had no response to the first one, gave it up, and uses the number again for another record."""
    (invoices,) = await stage.create_topic("invoices")
    for aborts in (True, False):
        producer, writer = await second_transaction(stage, invoices, first_batch=[b"given up"], aborts=aborts)
        assert await writer.write(0, b"another") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ok(await producer.end(commit=False))


@scenario(settings={"oncelog.transaction.connection.challenge.enable": "false"})
async def test_batch_is_not_challenged_if_the_setting_says_so(stage: Stage) -> None:
    (invoices,) = await stage.create_topic("invoices")
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    live = Writer(await stage.connect(), producer, invoices)
    assert await live.write(1, b"kept") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept"]
