"""Which batch may leave when, and when numbering begins anew."""

import pytest

from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_id_and_epoch import LAST_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.producer_sequences import ProducerSequences
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)
UNKNOWN_OFFSET = -1
RECORDS = 10


def new_batch(topic_partition: TopicPartition = ORDERS) -> ProducerBatch:
    batch = ProducerBatch(topic_partition, 100_000, 0, 0.0)
    for _ in range(RECORDS):
        batch.append(0, None, b"value", ())
    return batch


def sequences(*, transactional: bool = False, epoch: int = 0) -> ProducerSequences:
    made = ProducerSequences(ProducerConfig(bootstrap="x", transactional_id="id" if transactional else None))
    made.producer = ProducerIdAndEpoch(7, epoch)
    return made


def sent(made: ProducerSequences, topic_partition: TopicPartition = ORDERS) -> ProducerBatch:
    batch = new_batch(topic_partition)
    assert made.may_send(batch)
    made.sending(batch)
    batch.is_on_wire = True
    return batch


def responded(batch: ProducerBatch) -> ProducerBatch:
    batch.is_on_wire = False
    return batch


def begun(made: ProducerSequences, topic_partition: TopicPartition = ORDERS) -> ProducerBatch:
    """The first batch, which goes alone."""
    first = sent(made, topic_partition)
    made.completed(responded(first), 0)
    return first


def test_batch_without_producer_id_is_not_sent() -> None:
    made = sequences()
    made.producer = NO_PRODUCER
    assert not made.may_send(new_batch())


def test_first_batch_of_a_numbering_is_sent_alone() -> None:
    """A broker that knows nothing of the producer accepts any sequence: the second must not overtake the first."""
    made = sequences()
    first = sent(made)
    assert not made.may_send(new_batch())
    made.completed(responded(first), 0)
    assert made.may_send(new_batch())


def test_first_batch_in_a_transaction_is_not_sent_alone() -> None:
    """What is overtaken there ends the transaction."""
    made = sequences(transactional=True)
    sent(made)
    assert made.may_send(new_batch())


def test_sequences_are_contiguous_and_at_most_five_in_flight() -> None:
    made = sequences()
    begun(made)
    under_way = [sent(made) for _ in range(5)]
    assert [batch.base_sequence for batch in under_way] == [10, 20, 30, 40, 50]
    assert not made.may_send(new_batch())
    assert made.may_send(new_batch(OTHERS))
    made.completed(responded(under_way[0]), 10)
    assert made.may_send(new_batch())


def test_retries_are_sent_one_at_a_time_in_order() -> None:
    made = sequences()
    begun(made)
    first, second = responded(sent(made)), responded(sent(made))
    assert made.may_send(first)
    assert not made.may_send(second)
    made.completed(first, 10)
    assert made.may_send(second)


def test_sequence_is_assigned_once() -> None:
    made = sequences()
    first = responded(sent(made))
    made.sending(first)
    assert first.base_sequence == 0
    assert made.of(ORDERS).next_sequence == RECORDS


def test_sequences_wrap_to_zero() -> None:
    made = sequences()
    begun(made)
    made.of(ORDERS).next_sequence = 2**31 - 5
    made.of(ORDERS).last_acked_sequence = 2**31 - 6
    across = sent(made)
    after = sent(made)
    assert (across.base_sequence, after.base_sequence) == (2**31 - 5, 5)
    made.completed(responded(across), 100)
    assert made.of(ORDERS).is_next(after.base_sequence)
    made.completed(responded(after), 110)
    assert made.of(ORDERS).last_acked_sequence == 14


def test_late_acknowledgement_keeps_the_newest_sequence() -> None:
    made = sequences()
    begun(made)
    first, second = sent(made), sent(made)
    made.completed(responded(second), 20)
    made.completed(responded(first), 10)
    assert made.of(ORDERS).last_acked_sequence == 29
    assert made.of(ORDERS).last_acked_offset == 29


# Out of order


def test_out_of_order_behind_an_unwritten_batch_is_retried() -> None:
    made = sequences()
    begun(made)
    sent(made)
    second = responded(sent(made))
    assert made.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    assert made.settle() == []
    assert made.producer.epoch == 0


def test_out_of_order_of_the_next_sequence_bumps_the_epoch() -> None:
    made = sequences()
    begun(made)
    first = responded(sent(made))
    assert made.can_retry(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    assert made.settle() == []
    assert made.producer.epoch == 1
    assert not first.has_sequence
    made.sending(first)
    assert (first.producer.epoch, first.base_sequence) == (1, 0)


def test_transaction_that_lost_a_batch_is_not_retried() -> None:
    made = sequences(transactional=True)
    first = responded(sent(made))
    assert not made.can_retry(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)


def test_numbering_restarts_only_when_no_batch_waits_for_a_response() -> None:
    made = sequences()
    begun(made)
    first, second = responded(sent(made)), sent(made)
    made.can_retry(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    assert made.settle() == []
    assert made.producer.epoch == 0
    assert not made.may_send(new_batch())
    responded(second)
    assert made.settle() == []
    assert made.producer.epoch == 1


def test_batch_that_may_be_written_fails_when_numbering_restarts() -> None:
    made = sequences()
    begun(made)
    lost, next_one = responded(sent(made)), responded(sent(made))
    next_one.maybe_written = True
    made.can_retry(lost, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    assert made.settle() == [next_one]
    assert next_one.has_sequence


def test_other_partitions_finish_under_the_old_epoch_before_they_restart() -> None:
    made = sequences()
    begun(made)
    begun(made, OTHERS)
    other = sent(made, OTHERS)
    made.can_retry(responded(sent(made)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    made.settle()
    assert not made.may_send(new_batch(OTHERS))
    made.completed(responded(other), 10)
    later = sent(made, OTHERS)
    assert (later.producer.epoch, later.base_sequence) == (1, 0)


def test_last_epoch_is_followed_by_a_new_producer_id() -> None:
    made = sequences(epoch=LAST_EPOCH)
    begun(made)
    made.can_retry(responded(sent(made)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    made.settle()
    assert made.producer == NO_PRODUCER
    assert not made.may_send(new_batch())


# A producer that the broker has forgotten


def test_unknown_producer_id_without_log_start_is_retried() -> None:
    made = sequences()
    first = responded(sent(made))
    assert made.can_retry(first, ErrorCode.UNKNOWN_PRODUCER_ID, UNKNOWN_OFFSET)
    assert made.settle() == []
    assert first.has_sequence


@pytest.mark.parametrize(("transactional", "epoch"), [(False, 1), (True, 0)])
def test_unknown_producer_id_after_retention_restarts(transactional: bool, epoch: int) -> None:
    made = sequences(transactional=transactional)
    begun(made)
    second = responded(sent(made))
    assert made.can_retry(second, ErrorCode.UNKNOWN_PRODUCER_ID, 50)
    made.settle()
    made.sending(second)
    assert (second.producer.epoch, second.base_sequence) == (epoch, 0)


def test_unknown_producer_id_after_a_loss_fails_the_transaction() -> None:
    made = sequences(transactional=True)
    begun(made)
    assert not made.can_retry(responded(sent(made)), ErrorCode.UNKNOWN_PRODUCER_ID, 0)


# Batches that were given up


def test_unresolved_batch_blocks_new_ones_until_it_is_resolved() -> None:
    made = sequences()
    begun(made)
    doubtful, next_one = sent(made), sent(made)
    made.remove(doubtful)
    made.give_up(doubtful)
    assert not made.may_send(new_batch())
    made.completed(responded(next_one), 20)  # So the one before it is written, too.
    made.settle()
    assert made.may_send(new_batch())
    assert made.producer.epoch == 0


def test_unresolved_batch_without_acknowledgement_bumps_the_epoch() -> None:
    made = sequences()
    begun(made)
    doubtful = sent(made)
    made.remove(doubtful)
    made.give_up(doubtful)
    made.settle()
    assert made.producer.epoch == 1
    assert sent(made).base_sequence == 0


def test_late_response_resolves_an_unresolved_batch() -> None:
    made = sequences()
    begun(made)
    doubtful, next_one = sent(made), sent(made)
    made.remove(doubtful)
    made.give_up(doubtful)
    made.remove(next_one)
    made.give_up(next_one)
    made.completed(responded(doubtful), 10)
    made.completed(responded(next_one), 20)
    made.settle()
    assert made.producer.epoch == 0


def test_batch_right_behind_an_unresolved_one_decides_it() -> None:
    """The others behind it are out of order for its sake, and wait."""
    made = sequences()
    begun(made)
    doubtful, next_one, last = sent(made), responded(sent(made)), responded(sent(made))
    made.remove(doubtful)
    made.give_up(doubtful)
    assert made.can_retry(last, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    made.settle()
    assert made.producer.epoch == 0
    assert made.can_retry(next_one, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_OFFSET)
    made.settle()
    assert made.producer.epoch == 1
    assert not next_one.has_sequence
    assert not last.has_sequence


def test_batch_that_was_never_sent_leaves_nothing_unresolved() -> None:
    made = sequences()
    begun(made)
    made.give_up(new_batch())
    made.settle()
    assert made.may_send(new_batch())
    assert made.producer.epoch == 0


# Without idempotence


def test_batches_without_sequences_are_sent_one_at_a_time() -> None:
    made = ProducerSequences(ProducerConfig(bootstrap="x", enable_idempotence=False, acks="1"))
    first = sent(made)
    assert not first.has_sequence
    assert not made.may_send(new_batch())
    assert made.may_send(responded(first))
    made.completed(first, 0)
    assert made.may_send(new_batch())
