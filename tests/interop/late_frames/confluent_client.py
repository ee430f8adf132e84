"""librdkafka as a client of workloads whose phases are acknowledged one by one; it speaks version 1."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.late_frames.client import LINGER_MS
from tests.interop.late_frames.producer_threads import run_in_threads
from tests.interop.late_frames.workload import Outcome, Phase, Transaction

_GIVE_UP_SECONDS: Final = 1.0
"""After which a phase is aborted. Its batch then waits for its repetition: an abort drops it, and its sequence numbers
go to the next one. If a batch timed out, librdkafka would get a new epoch."""
_DELIVERY_TIMEOUT_MS: Final = 30_000
_RETRY_BACKOFF_MS: Final = 50


class PhasedConfluent:
    """A thread for each producer."""

    name = "confluent-kafka"

    def lacking(self) -> str | None:
        return None

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> list[str]:
        return run_in_threads(partial(_run, address, topic), transactional_id_prefix, transactions)


def _run(address: str, topic: str, transactional_id: str, transactions: Sequence[Transaction]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while len(outcomes) < len(transactions):
        settings: dict[str, int | str] = {
            "linger.ms": LINGER_MS,
            "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "retry.backoff.ms": _RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": _RETRY_BACKOFF_MS,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": _RETRY_BACKOFF_MS,
        }
        # Else offsets may wait for ever once the connection to an only broker broke (confluentinc/librdkafka#5511).
        settings |= {"metadata.recovery.strategy": "none"}
        producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, **settings})
        producer.init_transactions(TIMEOUT_SECONDS)
        for transaction in transactions[len(outcomes) :]:
            outcomes.append(_transaction(producer, topic, transactional_id, transaction))
            if outcomes[-1] in (Outcome.COMMIT_FAILED, Outcome.ABORT_FAILED):
                break
    return outcomes


def _transaction(producer: Producer, topic: str, group: str, transaction: Transaction) -> Outcome:
    try:
        producer.begin_transaction()
        for phase in transaction.phases:
            send_phase(producer, topic, phase)
        if transaction.commits_offset:
            _commit_offset(producer, topic, group, transaction.offset)
    except KafkaException:
        return _aborted(producer, Outcome.ABORT_FAILED)
    if not transaction.commit:
        return _aborted(producer, Outcome.ABORT_FAILED)
    try:
        producer.commit_transaction(TIMEOUT_SECONDS)
        return Outcome.COMMITTED
    except KafkaException:
        return _aborted(producer, Outcome.COMMIT_FAILED)


def send_phase(producer: Producer, topic: str, phase: Phase) -> None:
    errors: list[KafkaError | None] = []
    for value in phase.values:
        producer.produce(
            topic, value, key=value, partition=phase.partition, on_delivery=lambda error, _: errors.append(error)
        )
    try:
        producer.flush(_GIVE_UP_SECONDS)
    except SystemError as error:  # A fatal error was raised, and a delivery callback ran before it was delivered.
        raise KafkaException("a fatal error of the producer") from error
    failed = [error for error in errors if error is not None]  # By identity: a KafkaError compares with numbers only.
    if failed:
        raise KafkaException(failed[0])
    if len(errors) < len(phase.values):
        raise KafkaException("records of the phase are still unacknowledged")


def _commit_offset(producer: Producer, topic: str, group: str, offset: int) -> None:
    # Only a consumer of librdkafka's can say what its group is; it need not consume.
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, TIMEOUT_SECONDS)


def _aborted(producer: Producer, unless_done: Outcome) -> Outcome:
    try:
        producer.abort_transaction(TIMEOUT_SECONDS)
        return Outcome.ABORTED
    except KafkaException:
        return unless_done
