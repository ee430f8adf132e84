"""Which records share a batch, when batches are ready, and how much is held."""

from collections import Counter
from random import Random

import pytest

from oncelog.clients.errors import RecordTooLarge
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.protocol.errors import ErrorCode
from tests.unit.clients.producer.pure_producer import LEADER, TOPIC, PureProducer, metadata_of

BATCH_BYTES = 1024
LINGER_SECONDS = 0.01
VALUE = bytes(100)


def config(**settings: int) -> ProducerConfig:
    fields = {"batch_bytes": BATCH_BYTES, "linger_ms": int(LINGER_SECONDS * 1000), "max_request_bytes": 4096}
    return ProducerConfig(bootstrap="x", enable_idempotence=False, acks="1", **(fields | settings))  # type: ignore[arg-type]


def producer(partitions: int = 4, **settings: int) -> PureProducer:
    return PureProducer(config(**settings), partitions)


def send_keyless(made: PureProducer, value: bytes = VALUE) -> FutureRecordMetadata:
    topic = made.accumulator.topics[TOPIC]
    return made.accumulator.append_sticky(topic, 0, value, ())


def ready(made: PureProducer) -> bool:
    return bool(made.accumulator.readiness(made.metadata, made.now).queues)


# Filling


def test_records_without_key_fill_a_batch_before_they_move_on() -> None:
    made = producer()
    futures = [send_keyless(made) for _ in range(200)]
    batches = list(dict.fromkeys(future._batch for future in futures))
    assert {batch.record_count for batch in batches[:-1]} == {batches[0].record_count}
    assert batches[0].record_count > 5
    partitions = Counter(batch.topic_partition.partition for batch in batches)
    assert len(partitions) == 4


def test_batches_that_leave_early_do_not_keep_records_in_one_partition() -> None:
    made = producer()
    partitions = set()
    for _ in range(100):
        partitions.add(send_keyless(made)._batch.topic_partition.partition)
        made.now += LINGER_SECONDS
        for batch in made.drain():
            made.respond(batch)
    assert partitions == set(range(4))


def test_sticky_partition_has_a_leader_if_any_has() -> None:
    made = producer()
    made.accumulator.update_topic(TOPIC, 4, [2])
    assert {send_keyless(made)._batch.topic_partition.partition for _ in range(50)} == {2}
    made.accumulator.update_topic(TOPIC, 4, [])
    send_keyless(made)


def test_topic_that_grows_keeps_its_queues() -> None:
    made = producer(partitions=1)
    first = made.send(0, VALUE)
    made.accumulator.update_topic(TOPIC, 2, [0, 1])
    again = made.send(0, VALUE)
    assert first.future._batch is again.future._batch
    assert made.send(1, VALUE).future._batch.topic_partition.partition == 1


def test_record_may_be_larger_than_a_batch_but_not_than_a_request() -> None:
    made = producer()
    large = made.send(0, bytes(2000))
    assert large.future._batch.record_count == 1
    used = made.accumulator.used_bytes
    with pytest.raises(RecordTooLarge, match="4096"):
        made.send(0, bytes(4096))
    assert made.accumulator.used_bytes == used
    assert len(made.accumulator.incomplete) == 1


def test_space_is_used_by_records_and_freed_by_responses() -> None:
    made = producer(buffer_bytes=4096)
    while not made.accumulator.is_full:
        made.send(0, VALUE)
    assert 4096 <= made.accumulator.used_bytes < 4096 + 200
    made.now = LINGER_SECONDS
    while batches := made.drain():
        for batch in batches:
            made.respond(batch)
    assert made.accumulator.used_bytes == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_does_not_change_the_space_that_is_freed(codec: str) -> None:
    made = PureProducer(ProducerConfig(bootstrap="x", enable_idempotence=False, compression=codec))  # type: ignore[arg-type]
    made.send(0, bytes(5000))
    made.now = 1.0
    (batch,) = made.drain()
    batch.encode(made.config.codec)
    made.respond(batch)
    assert made.accumulator.used_bytes == 0


# Ready


def test_batch_waits_for_more_records_until_it_has_lingered() -> None:
    made = producer()
    made.send(0, VALUE)
    found = made.accumulator.readiness(made.metadata, made.now)
    assert (found.queues, found.next_at) == ({}, LINGER_SECONDS)
    made.now = LINGER_SECONDS
    assert ready(made)


def test_full_batch_does_not_wait() -> None:
    made = producer()
    made.send(0, bytes(BATCH_BYTES))
    assert ready(made)


def test_batch_that_had_no_room_for_the_next_record_does_not_wait() -> None:
    made = producer()
    made.send(0, bytes(700))
    made.send(0, bytes(700))
    assert [batch.record_count for batch in made.drain()] == [1]
    assert not ready(made)


@pytest.mark.parametrize("reason", ["flush", "close", "full"])
def test_batch_does_not_linger_when_everything_must_be_sent(reason: str) -> None:
    made = producer(buffer_bytes=4096)
    made.send(0, VALUE)
    if reason == "flush":
        made.accumulator.flushes += 1
    elif reason == "close":
        made.accumulator.is_closed = True
    else:
        made.accumulator.used_bytes += 4096
    assert ready(made)


def test_waiting_batches_are_sent_with_a_ready_one_of_their_broker() -> None:
    made = producer()
    for partition in range(3):
        made.send(partition, VALUE)
    made.send(3, bytes(BATCH_BYTES))
    assert {batch.topic_partition.partition for batch in made.drain()} == {0, 1, 2, 3}


def test_request_is_no_larger_than_it_may_be_and_partitions_take_turns() -> None:
    made = producer()
    for partition in (0, 1, 2, 3):
        for _ in range(4):
            made.send(partition, bytes(2000))
    seen: list[int] = []
    while batches := made.drain():
        assert sum(batch.size for batch in batches) <= 4096
        seen += [batch.topic_partition.partition for batch in batches]
        for batch in batches:
            made.respond(batch)
    assert Counter(seen[:4]) == Counter(range(4))
    assert Counter(seen) == Counter(dict.fromkeys(range(4), 4))


def test_partition_without_leader_waits_and_is_reported() -> None:
    made = producer()
    made.metadata = metadata_of(4, leader=9)
    made.send(0, bytes(BATCH_BYTES))
    found = made.accumulator.readiness(made.metadata, made.now)
    assert (found.queues, found.without_leader) == ({}, {TOPIC})


def test_retry_waits_for_its_turn_unless_there_is_a_new_leader() -> None:
    """KIP-951."""
    made = producer()
    made.send(0, bytes(BATCH_BYTES))
    (batch,) = made.drain()
    made.respond(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not ready(made)
    assert made.accumulator.readiness(made.metadata, made.now).next_at == batch.retry_at > made.now
    made.metadata = metadata_of(4, leader=LEADER + 1, epoch=1)
    assert list(made.accumulator.readiness(made.metadata, made.now).queues) == [LEADER + 1]
    assert made.drain() == [batch]
    made.respond(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    made.now = batch.retry_at
    assert made.drain() == [batch]


def test_topic_names_include_topics_with_waiting_records() -> None:
    made = producer()
    made.send(0, VALUE)
    made.accumulator.forget_topic(TOPIC)
    assert made.accumulator.topic_names() == {TOPIC}
    made.now = LINGER_SECONDS
    for batch in made.drain():
        made.respond(batch)
    assert made.accumulator.topic_names() == set()


def test_random_choice_uses_the_injected_rng() -> None:
    def partitions(seed: int) -> list[int]:
        made = producer()
        made.accumulator = RecordAccumulator(
            made.config,
            made.manager,
            rng=Random(seed),
            now=lambda: 0.0,
            on_batch=lambda: None,
            on_full_batch=lambda: None,
        )
        made.accumulator.update_topic(TOPIC, 4, range(4))
        return [send_keyless(made)._batch.topic_partition.partition for _ in range(100)]

    assert partitions(1) == partitions(1) != partitions(2)
