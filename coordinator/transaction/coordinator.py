"""The transaction coordinator of one broker: what the requests of producers do.

A request is decided by the pure functions of ``state``. ``TransactionStateManager`` appends the transition to the log,
and applies it when it is durable; ``TransactionCompletion`` brings what was prepared to its end; ``Sweeps`` abort what
has been open for too long, and forget ids that are not used. Here they meet:

    decide → append → apply → respond

EndTxn responds when Complete* is applied, or ``completion_wait_ms`` after Prepare* is durable. The decision is durable
with Prepare*, and Kafka responds then; but a client that begins its next transaction at once finds the id busy and
backs off for 20 ms or more, while Complete* takes microseconds when the partitions are local. For the same reason
InitProducerId and a client's AddPartitionsToTxn wait ``busy_wait_ms`` for a busy id before they respond with
CONCURRENT_TRANSACTIONS. A broker's AddPartitionsToTxn is for many ids at once, so it waits for none of them.

A version-1 request that would change a transaction, and comes over another connection than the one before, must be
repeated (``connection_challenge``). What changes nothing gets its response without that.

Every response of NONE stands for a record below the high watermark. Where that takes longer than ``request_timeout_ms``
the client gets COORDINATOR_NOT_AVAILABLE, which says nothing about the outcome: it retries.
"""

import asyncio
from collections.abc import Generator, Iterator
from functools import partial
from typing import NamedTuple

from oncelog.coordinator.ports import (
    ClientConnection,
    CoordinatorHost,
    FinalizedFeatures,
    ProducerIdSource,
    ReplicatedLog,
)
from oncelog.coordinator.promise import Response, settle
from oncelog.coordinator.timers import Backoff, Deadlines
from oncelog.coordinator.transaction.completion import TransactionCompletion
from oncelog.coordinator.transaction.connection_challenge import Action
from oncelog.coordinator.transaction.figures import TransactionFigures
from oncelog.coordinator.transaction.id_limits import validate_new_id
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.marker_sender import MarkerSender
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import (
    NO_PRODUCER,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Missing,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    Transition,
    check_producer,
    decide_add_partitions,
    decide_end_txn,
    decide_init_producer_id,
    decide_with_producer_id,
    first_metadata,
    producer_when_complete,
    verify_partitions,
)
from oncelog.coordinator.transaction.state_manager import OwnedPartition, TransactionStateManager
from oncelog.coordinator.transaction.sweeps import Sweeps
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.coordinator.transaction.waits import RequestWaits
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition


class InitProducerIdResult(NamedTuple):
    """The producer's id and epoch; both -1 with an error."""

    error: ErrorCode
    producer: ProducerIdAndEpoch


class EndTxnResult(NamedTuple):
    """The producer's id and epoch for its next transaction; both -1 with an error."""

    error: ErrorCode
    producer: ProducerIdAndEpoch


class _InitProducerId(NamedTuple):
    """An InitProducerId request for a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    cause: str | None
    connection: ClientConnection | None


class _EndTxn(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    client_version: int
    connection: ClientConnection | None


class TransactionCoordinator:
    """Plain calls; what they return says when the result is there (``oncelog.coordinator.promise.Response``)."""

    def __init__(
        self,
        host: CoordinatorHost,
        config: TransactionConfig,
        *,
        producer_ids: ProducerIdSource,
        features: FinalizedFeatures,
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        self._features = features
        self._wall_clock = host.wall_clock
        self._states = TransactionStateManager(
            partition_count=partial(host.metadata.partition_count, TRANSACTION_STATE_TOPIC_NAME),
            tasks=host.tasks,
            wall_clock=host.wall_clock,
            features=features,
            on_open=lambda partition, prepared: self._completion.resume(partition, prepared),
        )
        markers = MarkerSender(
            broker_id=host.broker_id,
            metadata=host.metadata,
            channel=host.channel,
            local=host.markers,
            retries=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )
        append_retries = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._completion = TransactionCompletion(self._states, markers, append_retries, host.wall_clock)
        self._completion_waits = Deadlines(config.completion_wait_ms)
        self._waits = RequestWaits(config, producer_ids, self._states)
        self._sweeps = Sweeps(
            states=self._states,
            completion=self._completion,
            producer_ids=producer_ids,
            tasks=host.tasks,
            wall_clock=host.wall_clock,
            features=features,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        )

    def start(self) -> None:
        """Begin the sweeps."""
        self._sweeps.start(self._config.abort_timed_out_interval_ms, self._config.remove_expired_interval_ms)

    def stop(self) -> None:
        """Stop everything that happens without a request."""
        self._sweeps.stop()
        self._completion.stop()
        self._completion_waits.stop()
        self._waits.stop()

    def on_elected(self, partition_index: int, log: ReplicatedLog) -> None:
        """Load a partition of the transaction log that this broker leads from now on."""
        self._completion.forget(partition_index)
        self._states.elect(partition_index, log)

    def on_resigned(self, partition_index: int) -> None:
        """Drop a partition of the transaction log that this broker does not lead any more."""
        self._completion.forget(partition_index)
        self._states.resign(partition_index)

    # InitProducerId

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        client: str = "",
        connection: ClientConnection | None = None,
    ) -> Response[InitProducerIdResult]:
        """Give a producer its id and epoch; without a transactional id that is always a new id.

        ``client`` names the client in the records that this leads to. ``connection`` acts for the producer from now on.
        """
        if transactional_id is None:
            grant = partial(_grant_producer_id, self._producer_ids)
            granted = grant(NO_PRODUCER_ID)
            return self._waits.with_producer_id(grant, _refused) if isinstance(granted, Missing) else granted
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        cause = f"InitProducerId from {client}" if client else None
        request = _InitProducerId(transactional_id, timeout_ms, expected, cause, connection)
        outcome = self._try_init(request, NO_PRODUCER_ID)
        if isinstance(outcome, Missing) or outcome == _refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            return self._waits.until_idle(transactional_id, partial(self._try_init, request), _refused, outcome)
        return outcome

    def _try_init(
        self, request: _InitProducerId, new_producer_id: int
    ) -> InitProducerIdResult | asyncio.Future[InitProducerIdResult] | Missing:
        """Decide once. CONCURRENT_TRANSACTIONS may mean that the abort of a predecessor's transaction has begun."""
        partition = self._states.partition_of(request.transactional_id)
        if isinstance(partition, ErrorCode):
            return _refused(partition)
        txn = self._find_or_new(partition, request, new_producer_id)
        if isinstance(txn, ErrorCode):
            return _refused(txn)
        if isinstance(txn, Missing):
            return txn
        decision = self._decide_init(txn, request, new_producer_id)
        if isinstance(decision, TransactionMetadata) and decision.state is TransactionState.PREPARE_ABORT:
            error = self._abort(partition, txn, decision)
            if error is not ErrorCode.NONE:
                return _refused(error)
            decision = self._decide_init(txn, request, NO_PRODUCER_ID)
        if isinstance(decision, Missing):
            return decision
        if isinstance(decision, ErrorCode):
            return _refused(decision)
        producer = decision.producer
        txn.acted_at = asyncio.get_running_loop().time()
        commit = self._states.append(partition, txn, decision)
        if request.connection is not None and not isinstance(commit, ErrorCode):
            partition.owner_of(request.transactional_id).grant(producer, request.connection.id)
        return self._waits.when_durable(commit, lambda error: _refused(error) if error else _granted(producer))

    def _find_or_new(
        self, partition: OwnedPartition, request: _InitProducerId, new_producer_id: int
    ) -> Transaction | ErrorCode | Missing:
        """Return the transaction of an id, or a new one for an id that the log does not know."""
        txn = partition.transactions.get(request.transactional_id)
        if txn is not None:
            return txn
        refusal = validate_new_id(request.transactional_id, self._states.id_count(), self._config)
        if refusal is not ErrorCode.NONE:
            return refusal
        producer_id = self._producer_ids.next_nowait() if new_producer_id == NO_PRODUCER_ID else new_producer_id
        if producer_id is None:
            return Missing.PRODUCER_ID
        return Transaction(
            request.transactional_id, first_metadata(producer_id, request.timeout_ms, self._wall_clock())
        )

    def _decide_init(
        self, txn: Transaction, request: _InitProducerId, new_producer_id: int
    ) -> Transition | ErrorCode | Missing:
        decide = partial(
            decide_init_producer_id,
            txn,
            request.timeout_ms,
            request.expected,
            now_ms=self._wall_clock(),
            transaction_version=self._features.transaction_version,
        )
        decision = decide_with_producer_id(decide, new_producer_id, self._producer_ids.next_nowait)
        return decision._replace(cause=request.cause) if isinstance(decision, TransactionMetadata) else decision

    def _abort(self, partition: OwnedPartition, txn: Transaction, prepare: Transition) -> ErrorCode:
        """Abort a predecessor's transaction. NONE: it is complete; CONCURRENT_TRANSACTIONS: it is under way."""
        ending = self._completion.end(partition, txn, prepare)
        error = ending if isinstance(ending, ErrorCode) else ending.error
        if error is ErrorCode.NONE and txn.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return error

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        connection: ClientConnection | None = None,
    ) -> Response[ErrorCode]:
        """Add partitions, of which the caller knows that they exist, to the producer's transaction.

        ``connection`` is that of a version-1 client.
        """
        attempt = partial(
            self.add_partitions_if_idle,
            transactional_id,
            producer,
            partitions,
            client_version=client_version,
            connection=connection,
        )
        outcome = attempt()
        if outcome is ErrorCode.CONCURRENT_TRANSACTIONS:
            return self._waits.until_idle(transactional_id, lambda _: attempt(), _same, outcome)
        return outcome

    def add_partitions_if_idle(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        connection: ClientConnection | None = None,
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Add partitions like ``add_partitions``, but return CONCURRENT_TRANSACTIONS at once for a busy id."""
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        partition, txn = found
        decision = decide_add_partitions(txn, producer, partitions, self._wall_clock(), client_version=client_version)
        if isinstance(decision, ErrorCode):
            return decision
        if connection is not None and self._config.challenges_connections:
            if partition.is_challenged(txn, producer, Action.ADD, connection):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        txn.acted_at = asyncio.get_running_loop().time()
        return self._waits.when_durable(self._states.append(partition, txn, decision), _same)

    def is_owner(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        connection: ClientConnection,
        *,
        marker_epoch: int,
        since_ms: int,
    ) -> bool:
        """Return whether a producer's request that last took effect came over a connection, after ``since_ms`` (loop).

        ``marker_epoch``: the coordinator epoch of its last marker; one later than here shows that it is another's now.
        """
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode) or found[0].coordinator_epoch < marker_epoch:
            return False
        return found[0].is_owner(found[1], producer, connection, since_ms=since_ms)

    def refuse_unknown_topic(self, transactional_id: str, producer: ProducerIdAndEpoch) -> ErrorCode:
        """Return the error for a partition that is not known, and so is not added.

        UNKNOWN_TOPIC_OR_PARTITION: it may have been created a moment ago, so the client is to retry. Clients retry
        without end, and a topic that was deleted does not come back: INVALID_TOPIC_EXCEPTION after the transaction's
        time-out.
        """
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        _, txn = found
        error = check_producer(txn.metadata, producer)
        if error is not ErrorCode.NONE:
            return error
        now_ms = self._wall_clock()
        if txn.unknown_since_ms == NO_TIMESTAMP:
            txn.unknown_since_ms = now_ms
        if now_ms - txn.unknown_since_ms > txn.metadata.timeout_ms:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return by partition whether its leader may append the first batch of this transaction."""
        found = self._find(transactional_id)
        verdict = found if isinstance(found, ErrorCode) else verify_partitions(found[1], producer, partitions)
        return dict.fromkeys(partitions, verdict) if isinstance(verdict, ErrorCode) else verdict

    # EndTxn

    def end_txn(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        client_version: int,
        connection: ClientConnection | None = None,
    ) -> Response[EndTxnResult]:
        """Commit or abort the producer's transaction, by the protocol of the client's version.

        ``connection`` is that of a version-1 client.
        """
        request = _EndTxn(transactional_id, producer, commit, client_version, connection)
        outcome = self._try_end(request, NO_PRODUCER_ID)
        if isinstance(outcome, Missing):
            return self._waits.with_producer_id(partial(self._try_end, request), _not_ended)
        return outcome

    def _try_end(self, request: _EndTxn, new_producer_id: int) -> EndTxnResult | asyncio.Future[EndTxnResult] | Missing:
        """Decide once."""
        found = self._find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return _not_ended(found)
        partition, txn = found
        decide = partial(
            decide_end_txn,
            txn,
            request.producer,
            request.commit,
            self._wall_clock(),
            client_version=request.client_version,
        )
        decision = decide_with_producer_id(decide, new_producer_id, self._producer_ids.next_nowait)
        if isinstance(decision, Missing):
            return decision
        if isinstance(decision, ErrorCode):
            return _not_ended(decision) if decision else EndTxnResult(decision, txn.metadata.producer)
        if request.connection is not None and self._config.challenges_connections:
            action = Action.COMMIT if request.commit else Action.ABORT
            if partition.is_challenged(txn, request.producer, action, request.connection):
                return _not_ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._end(partition, txn, decision)

    def _end(
        self, partition: OwnedPartition, txn: Transaction, prepare: Transition
    ) -> EndTxnResult | asyncio.Future[EndTxnResult]:
        """Append Prepare*, and respond when the transaction is complete, or soon after Prepare* is durable."""
        txn.acted_at = asyncio.get_running_loop().time()
        ended = EndTxnResult(ErrorCode.NONE, producer_when_complete(prepare))
        ending = self._completion.end(partition, txn, prepare)
        if isinstance(ending, ErrorCode):
            return _not_ended(ending)
        if ending.completed.value is not None:
            return ended  # Also if the partition was lost meanwhile: what was decided is durable.
        response = self._waits.response(partial(_not_ended, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        ending.completed.then(lambda _: settle(response, ended))
        ending.prepared.then(partial(self._on_prepared, response, ended))
        return response

    def _on_prepared(self, response: asyncio.Future[EndTxnResult], ended: EndTxnResult, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            settle(response, _not_ended(error))
        elif not response.done():
            self._completion_waits.add(lambda: settle(response, ended))

    # For operators

    def describe(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        """Return what is durable of an id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        partition = self._states.partition_of(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        txn = partition.transactions.get(transactional_id)
        if txn is None or not txn.metadata.exists_in_log:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return txn.metadata

    def list_transactions(
        self, wanted: TransactionFilter, budget: WorkBudget
    ) -> Generator[None, object, list[Transaction]] | ErrorCode:
        """Return those ids of this broker's partitions that the filter accepts; yields when the budget is used up."""
        if self._states.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return wanted.select(list(self._states.all_transactions()), self._wall_clock(), budget)

    def open_transactions(self) -> Iterator[Transaction]:
        """Yield the ids of this broker's partitions that have an ongoing transaction."""
        for partition in self._states.open_partitions():
            yield from partition.ongoing.values()

    @property
    def is_loading(self) -> bool:
        """Return whether a partition of the transaction log is still being read, so that its ids are not served."""
        return self._states.is_loading

    @property
    def figures(self) -> TransactionFigures:
        return self._completion.figures(self._sweeps.timed_out_count)

    def _find(self, transactional_id: str) -> tuple[OwnedPartition, Transaction] | ErrorCode:
        """Return a known transactional id and its open partition."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        partition = self._states.partition_of(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        txn = partition.transactions.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if txn is None else (partition, txn)


def _grant_producer_id(producer_ids: ProducerIdSource, new_producer_id: int) -> InitProducerIdResult | Missing:
    """Give out a producer id that has no transactional id."""
    producer_id = producer_ids.next_nowait() if new_producer_id == NO_PRODUCER_ID else new_producer_id
    return Missing.PRODUCER_ID if producer_id is None else _granted(ProducerIdAndEpoch(producer_id, 0))


def _granted(producer: ProducerIdAndEpoch) -> InitProducerIdResult:
    return InitProducerIdResult(ErrorCode.NONE, producer)


def _refused(error: ErrorCode) -> InitProducerIdResult:
    return InitProducerIdResult(error, NO_PRODUCER)


def _not_ended(error: ErrorCode) -> EndTxnResult:
    return EndTxnResult(error, NO_PRODUCER)


def _same(error: ErrorCode) -> ErrorCode:
    return error
