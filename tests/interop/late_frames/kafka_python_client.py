"""kafka-python as a client of workloads whose phases are acknowledged one by one; it speaks version 1."""

from collections.abc import Sequence
from functools import partial

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.late_frames.client import DELIVERY_TIMEOUT_MS, LINGER_MS, REQUEST_TIMEOUT_MS
from tests.interop.late_frames.producer_threads import run_in_threads
from tests.interop.late_frames.workload import Outcome, Phase, Transaction


class PhasedKafkaPython:
    """A thread for each producer."""

    name = "kafka-python"

    def lacking(self) -> str | None:
        return None

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> list[str]:
        return run_in_threads(partial(_run, address, topic), transactional_id_prefix, transactions)


def _run(address: str, topic: str, transactional_id: str, transactions: Sequence[Transaction]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while len(outcomes) < len(transactions):
        producer = KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            linger_ms=LINGER_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_backoff_ms=2,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=10,
        )
        try:
            producer.init_transactions()
            for transaction in transactions[len(outcomes) :]:
                outcomes.append(_transaction(producer, topic, transactional_id, transaction))
                if outcomes[-1] in (Outcome.COMMIT_FAILED, Outcome.ABORT_FAILED):
                    break
        finally:
            producer.close(TIMEOUT_SECONDS)
    return outcomes


def _transaction(producer: KafkaProducer, topic: str, group: str, transaction: Transaction) -> Outcome:
    try:
        producer.begin_transaction()
        for phase in transaction.phases:
            _send(producer, topic, phase)
        if transaction.commits_offset:
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(transaction.offset, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
    except KafkaError:
        return _aborted(producer, Outcome.ABORT_FAILED)
    if not transaction.commit:
        return _aborted(producer, Outcome.ABORT_FAILED)
    try:
        producer.commit_transaction()
        return Outcome.COMMITTED
    except KafkaError:
        return _aborted(producer, Outcome.COMMIT_FAILED)


def _send(producer: KafkaProducer, topic: str, phase: Phase) -> None:
    sent = [
        producer.send(topic, key=value.encode(), value=value.encode(), partition=phase.partition)
        for value in phase.values
    ]
    producer.flush(TIMEOUT_SECONDS)
    for future in sent:
        future.get(TIMEOUT_SECONDS)


def _aborted(producer: KafkaProducer, unless_done: Outcome) -> Outcome:
    try:
        producer.abort_transaction()
        return Outcome.ABORTED
    except KafkaError:
        return unless_done
