"""The outcome of each attempt to deliver a batch: written, retried, split or failed. Pure.

A batch is done exactly once and then leaves the accumulator, whatever response comes later. The rules are those of
Kafka's ``Sender``; the transaction manager decides whether a refused batch may be retried.
"""

from collections.abc import Mapping
from typing import Final

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    DeliveryTimedOut,
    OutcomeUnknown,
    ProducerFenced,
    Refusal,
    TransactionAbortable,
    TransactionAborted,
    error_code,
)
from oncelog.clients.obstacles import Obstacle
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.record_metadata import NO_OFFSET
from oncelog.clients.producer.transaction_manager import MAYBE_WRITTEN, TransactionManager
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.records.record_batch import NO_TIMESTAMP

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which metadata has to be refreshed (Kafka's ``InvalidMetadataException``)."""
_NO_RESPONSE: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Error codes for a response that did not come; the obstacles of the connections have the reason."""
_CONCURRENT_TRANSACTIONS_SECONDS: Final = 0.02
"""Backoff while the former transaction is being completed, which takes milliseconds (KAFKA-5482)."""


class BatchDelivery:
    """Decides and applies the outcome of each attempt. ``now`` is the loop's time everywhere."""

    def __init__(
        self, config: ProducerConfig, manager: TransactionManager, accumulator: RecordAccumulator, backoff: Backoff
    ) -> None:
        self._manager = manager
        self._accumulator = accumulator
        self._backoff = backoff
        self._delivery_seconds = config.delivery_timeout_ms / 1000
        self._batch_bytes = config.batch_bytes
        self._max_batch_bytes = config.buffer_bytes + config.max_request_bytes

    # Responses

    def handle_response(self, batch: ProducerBatch, response: PartitionProduceResponse, now: float) -> None:
        """Apply a broker's response for one batch."""
        batch.is_on_wire = False
        error = error_code(response.error_code)
        if error in MAYBE_WRITTEN:
            batch.maybe_written = True
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._written(batch, response if error == ErrorCode.NONE else None)
        elif batch.is_done:
            self._manager.sequences.remove(batch)
        elif error == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(batch)
        elif now < self._deadline(batch) and self._manager.can_retry(batch, error, response.log_start_offset):
            self._retry(batch, error, now)
        elif batch.maybe_written and now >= self._deadline(batch):
            self._expire(batch)
        else:
            refused = Refusal(error=error, message=response.error_message, is_for_others=bool(response.record_errors))
            refused = self._manager.causes.explain(refused)
            self._fail(batch, error, _error(batch, refused), _record_errors(batch, response))

    def handle_loss(self, batch: ProducerBatch, error: ErrorCode, now: float) -> None:
        """Apply that no response will come: ``NETWORK_EXCEPTION`` or ``REQUEST_TIMED_OUT``."""
        self.handle_response(batch, PartitionProduceResponse(error_code=error), now)

    def complete_unacknowledged(self, batch: ProducerBatch) -> None:
        """Complete a batch that was handed to its connection with ``acks=0``."""
        batch.is_on_wire = False
        self._written(batch, None)

    def _written(self, batch: ProducerBatch, response: PartitionProduceResponse | None) -> None:
        base_offset = NO_OFFSET if response is None else response.base_offset
        self._manager.sequences.completed(batch, base_offset)
        self._accumulator.release(batch)
        batch.complete(base_offset, NO_TIMESTAMP if response is None else response.log_append_time_ms)

    def _retry(self, batch: ProducerBatch, error: ErrorCode, now: float) -> None:
        concurrent = error == ErrorCode.CONCURRENT_TRANSACTIONS
        pause = _CONCURRENT_TRANSACTIONS_SECONDS if concurrent else self._backoff.pause_seconds(batch.attempts)
        batch.attempts += 1
        batch.last_error = error
        if error in _NO_RESPONSE:
            batch.refused_since = None
        elif batch.refused_since is None:
            batch.refused_since = now
        batch.retry_at = now + pause
        self._accumulator.enqueue_again(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Split a batch into batches of ``batch_bytes``, and those into halves."""
        limit = max(batch.record_bytes // 2, 1) if batch.is_split else min(self._batch_bytes, batch.record_bytes // 2)
        self._accumulator.replace(batch, batch.split(limit, self._max_batch_bytes))

    def _fail(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        error: ClientError,
        record_errors: Mapping[int, ClientError] | None = None,
    ) -> None:
        self._accumulator.discard(batch)
        self._manager.failed(batch, code, error)
        batch.fail(error, record_errors)

    def obstacles(self, now: float) -> list[Obstacle]:
        """Return the errors for which batches are retried, each with its longest waiting batch, the oldest first."""
        waiting = [
            (each.refused_since, each) for each in self._accumulator.incomplete if each.refused_since is not None
        ]
        longest: dict[ErrorCode, Obstacle] = {}
        for since, batch in sorted(waiting, key=lambda item: item[0]):
            error = batch.last_error
            reason = f"{batch.topic_partition}: {error.name}"
            longest.setdefault(error, Obstacle(reason=reason, seconds=now - since, error=error))
        return list(longest.values())

    # Time

    def _deadline(self, batch: ProducerBatch) -> float:
        return batch.created_at + self._delivery_seconds

    def next_expiry_at(self) -> float:
        """Return when the oldest batch expires."""
        return next(map(self._deadline, self._accumulator.incomplete), float("inf"))

    def expire(self, now: float) -> None:
        """Give up the batches whose delivery timed out."""
        for batch in list(self._accumulator.incomplete):
            if now < self._deadline(batch):
                return
            self._expire(batch)

    def _expire(self, batch: ProducerBatch) -> None:
        maybe_written = batch.is_on_wire or batch.maybe_written
        sent = "was not acknowledged" if maybe_written or batch.attempts else "could not be sent"
        reason = f": the last attempt ended with {batch.last_error.name}" if batch.attempts else ""
        error = DeliveryTimedOut(
            f"a batch of {batch.record_count} records for {batch.topic_partition} {sent} "
            f"within {self._delivery_seconds:g} s{reason}",
            maybe_written=maybe_written,
            last_error=None if batch.refused_since is None else batch.last_error,
        )
        self._accumulator.discard(batch)
        self._manager.expired(batch, error)
        batch.fail(error)

    # The producer's state

    def settle(self) -> None:
        """Give up the batches that the state of the producer does not allow to be sent any more."""
        for batch in self._manager.settle():
            unknown = OutcomeUnknown(f"whether the batch for {batch.topic_partition} was written is not known")
            self._fail(batch, ErrorCode.UNKNOWN_SERVER_ERROR, unknown)
        error = self._manager.state.error()
        if self._manager.state.current is State.FATAL_ERROR:
            assert error is not None
            self.fail_all(error)
        elif error is not None:
            self._fail_what_was_not_sent(error)
        elif self._manager.state.current is State.ABORTING_TRANSACTION:
            self._fail_what_was_not_sent(TransactionAborted("the transaction was aborted"))
        elif self._manager.refusal is not None:
            self._fail_what_was_not_sent(self._manager.refusal)
            self._manager.refusal = None

    def _fail_what_was_not_sent(self, error: ClientError) -> None:
        for batch in [each for each in self._accumulator.incomplete if not each.has_sequence]:
            self._accumulator.discard(batch)
            batch.fail(error)

    def fail_all(self, error: ClientError) -> None:
        """Give up every batch, whether it was sent or not."""
        for batch in list(self._accumulator.incomplete):
            self._accumulator.discard(batch)
            self._manager.sequences.remove(batch)
            batch.fail(error)


def _error(batch: ProducerBatch, refused: Refusal) -> ClientError:
    subject = str(batch.topic_partition)
    if batch.maybe_written:
        return OutcomeUnknown(f"{subject}: {refused}, but this attempt, or an earlier one, may have been written")
    if refused.error == ErrorCode.PRODUCER_FENCED:
        return ProducerFenced(f"{subject}: {refused}")
    if refused.error == ErrorCode.TRANSACTION_ABORTABLE:
        return TransactionAbortable(f"{subject}: {refused}")
    return BrokerRefused(subject, refused)


def _record_errors(batch: ProducerBatch, response: PartitionProduceResponse) -> dict[int, ClientError]:
    """Return the errors of single records (KIP-467); the other records fail with the error of the batch."""
    subject = str(batch.topic_partition)
    only = len(response.record_errors) == 1
    code = error_code(response.error_code) if only else ErrorCode.INVALID_RECORD
    return {
        each.batch_index: BrokerRefused(
            subject, Refusal(error=code, message=each.batch_index_error_message or response.error_message)
        )
        for each in response.record_errors
    }
