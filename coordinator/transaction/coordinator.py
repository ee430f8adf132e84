"""The transaction coordinator of one broker: what the requests of producers do, and what happens without any.

A request is decided by the pure functions of ``state``; ``TransactionStateManager`` brings the transition into the
log; ``MarkerSender`` brings its outcome to the partitions. Here the three meet:

* Prepare* durable → the markers go out → every partition has its marker → Complete* is appended. From the moment that
  Prepare* is durable the transition to Complete* is pending, so the id is busy until then. The log may refuse Complete*
  for a while (too few in-sync replicas); then it is tried again, and it is appended once.
* After an election the same begins again for every transaction that was found prepared.
* The sweeps abort what has been open for too long, and forget ids that nobody uses (``sweeps``).

When EndTxn is answered. The decision is durable with Prepare*, and Kafka answers then; but a client that begins its
next transaction at once finds the id busy and backs off for 20 ms or more. So the answer waits for Complete*, which
takes microseconds when the partitions are here, and never longer than ``completion_wait_ms``. For the same reason
InitProducerId and a client's AddPartitionsToTxn wait ``busy_wait_ms`` for a busy id before they answer
CONCURRENT_TRANSACTIONS: longer, since who is refused backs off, and markers that other brokers replicate take
milliseconds. A broker's AddPartitionsToTxn is for many ids at once, so it waits for none of them.

Every answer of NONE stands for a record below the high watermark. Where that takes longer than ``request_timeout_ms``
the client is told COORDINATOR_NOT_AVAILABLE, which says nothing about the outcome: it asks again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.ports import (
    BrokerChannel,
    ProducerIdSource,
    ReplicatedLog,
    TaskOwner,
    TopicMetadata,
    WallClock,
)
from oncelog.coordinator.runtime import Answer, Backoff, Deadlines, Reply
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.marker_sender import MarkerSender, PendingMarkers
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Missing,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    TransactionState,
    Transition,
    check_producer,
    decide_add_partitions,
    decide_completion,
    decide_end_txn,
    decide_init_producer_id,
    decide_with_producer_id,
    first_metadata,
    producer_when_complete,
    verify_partitions,
)
from oncelog.coordinator.transaction.state_manager import OnDone, OwnedPartition, TransactionStateManager
from oncelog.coordinator.transaction.sweeps import Sweeps
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class InitProducerIdResult(NamedTuple):
    """The producer's id and epoch; both -1 with an error."""

    error: ErrorCode
    producer: ProducerIdAndEpoch


class EndTxnResult(NamedTuple):
    """The producer's id and epoch for its next transaction; both -1 with an error."""

    error: ErrorCode
    producer: ProducerIdAndEpoch


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_SETTLE_ATTEMPTS: Final = 4
"""Two of them are needed to abort a predecessor's transaction and go on; more, where several fight for an id."""


class _InitProducerId(NamedTuple):
    """An InitProducerId request for a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    cause: str | None


class _EndTxn(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    client_version: int


class TransactionCoordinator:
    """Plain calls; what they return says when the answer is there (``oncelog.coordinator.runtime.Answer``)."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: TransactionConfig,
        metadata: TopicMetadata,
        channel: BrokerChannel,
        producer_ids: ProducerIdSource,
        tasks: TaskOwner,
        wall_clock: WallClock,
        transaction_version: Callable[[], int],
    ) -> None:
        """``transaction_version`` is the finalised level of the feature."""
        self._config = config
        self._producer_ids = producer_ids
        self._wall_clock = wall_clock
        self._transaction_version = transaction_version
        self._states = TransactionStateManager(
            partition_count=partial(metadata.partition_count, TRANSACTION_STATE_TOPIC_NAME),
            tasks=tasks,
            wall_clock=wall_clock,
            transaction_version=transaction_version,
            on_open=self._complete_prepared,
        )
        self._markers = MarkerSender(
            broker_id=broker_id,
            metadata=metadata,
            channel=channel,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
        self._completion_retries = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._completion_waits = Deadlines(config.completion_wait_ms)
        self._busy_waits = Deadlines(config.busy_wait_ms)
        self._request_timeouts = Deadlines(config.request_timeout_ms)
        self._sweeps = Sweeps(
            states=self._states,
            producer_ids=producer_ids,
            tasks=tasks,
            wall_clock=wall_clock,
            transaction_version=transaction_version,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            abort=lambda partition, txn, transition, on_done: self._prepare(
                partition, txn, transition, on_done, _ignore
            ),
        )

    # Life

    def start(self) -> None:
        """Begin the sweeps."""
        config = self._config
        self._sweeps.start(config.abort_timed_out_interval_ms, config.remove_expired_interval_ms)

    def stop(self) -> None:
        """Nothing happens after this except by requests."""
        self._sweeps.stop()
        self._markers.stop()
        self._completion_retries.stop()
        self._completion_waits.stop()
        self._busy_waits.stop()
        self._request_timeouts.stop()

    def on_elected(self, partition_index: int, log: ReplicatedLog) -> None:
        """This broker leads a partition of the transaction log."""
        self._markers.forget(partition_index)
        self._states.elect(partition_index, log)

    def on_resigned(self, partition_index: int) -> None:
        """It does not any more."""
        self._markers.forget(partition_index)
        self._states.resign(partition_index)

    # InitProducerId

    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdAndEpoch | None, *, client: str = ""
    ) -> Answer[InitProducerIdResult]:
        """Give a producer its id and epoch. Without a transactional id that is a new id, whoever asks.

        ``client`` says who asks, for the records that this leads to.
        """
        if transactional_id is None:
            producer_id = self._producer_ids.next_nowait()
            return self._reserve_producer_id() if producer_id is None else _granted(ProducerIdAndEpoch(producer_id, 0))
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        cause = f"InitProducerId from {client}" if client else None
        request = _InitProducerId(transactional_id, timeout_ms, expected, cause)
        outcome = self._try_init(request, NO_PRODUCER_ID)
        if isinstance(outcome, Reply):
            return self._in_time(outcome, _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if outcome in (Missing.PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS):
            return self._init_in_steps(request, outcome)
        assert isinstance(outcome, ErrorCode)
        return _refused(outcome)

    async def _reserve_producer_id(self) -> InitProducerIdResult:
        try:
            return _granted(ProducerIdAndEpoch(await self._producer_ids.next(), 0))
        except StoreUnavailable:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _init_in_steps(self, request: _InitProducerId, outcome: ErrorCode | Missing) -> InitProducerIdResult:
        """Bring what is missing, or wait for what is going on, and decide again each time."""
        for _ in range(_SETTLE_ATTEMPTS):
            producer_id = NO_PRODUCER_ID
            if outcome is Missing.PRODUCER_ID:
                try:
                    producer_id = await self._producer_ids.next()
                except StoreUnavailable:
                    return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            elif not await self._settled(request.transactional_id):
                break
            again = self._try_init(request, producer_id)
            if isinstance(again, Reply):
                answer = self._in_time(again, _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return answer if isinstance(answer, InitProducerIdResult) else await answer
            if again not in (Missing.PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS):
                assert isinstance(again, ErrorCode)
                return _refused(again)
            outcome = again
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _validate_new_id(self, transactional_id: str) -> ErrorCode:
        """An id is kept for a week, whoever made it: their length and their number are bounded."""
        length, limit = len(transactional_id), self._config.max_id_length
        if length > limit:
            logger.warning(
                "Refused a transactional id of %d characters: oncelog.transactional.id.max.length is %d", length, limit
            )
            return ErrorCode.INVALID_REQUEST
        if self._states.id_count() >= self._config.max_ids:
            logger.warning(
                "Refused the transactional id %s: oncelog.transactional.ids.max.count is %d",
                transactional_id,
                self._config.max_ids,
            )
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def _try_init(
        self, request: _InitProducerId, new_producer_id: int
    ) -> Reply[InitProducerIdResult] | ErrorCode | Missing:
        """Decide once. CONCURRENT_TRANSACTIONS may mean that the abort of a predecessor has begun."""
        partition = self._states.partition_of(request.transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        now_ms = self._wall_clock()
        txn = partition.transactions.get(request.transactional_id)
        if txn is None:
            refusal = self._validate_new_id(request.transactional_id)
            if refusal is not ErrorCode.NONE:
                return refusal
            producer_id = self._producer_ids.next_nowait() if new_producer_id == NO_PRODUCER_ID else new_producer_id
            if producer_id is None:
                return Missing.PRODUCER_ID
            txn = Transaction(request.transactional_id, first_metadata(producer_id, request.timeout_ms, now_ms))
        decide = partial(
            decide_init_producer_id,
            txn,
            request.timeout_ms,
            request.expected,
            now_ms=now_ms,
            transaction_version=self._transaction_version(),
        )
        decision = decide_with_producer_id(decide, new_producer_id, self._producer_ids.next_nowait)
        if not isinstance(decision, TransactionMetadata):
            return decision
        decision = decision._replace(cause=request.cause)
        if decision.state is TransactionState.PREPARE_ABORT:
            error = self._abort(partition, txn, decision)
            is_settled = error is ErrorCode.CONCURRENT_TRANSACTIONS and txn.pending is None
            return self._try_init(request, NO_PRODUCER_ID) if is_settled else error
        reply: Reply[InitProducerIdResult] = Reply()
        producer = decision.producer
        self._states.append(
            partition,
            txn,
            decision,
            lambda error: reply(_granted(producer) if error is ErrorCode.NONE else _refused(error)),
        )
        return reply

    def _abort(self, partition: OwnedPartition, txn: Transaction, transition: Transition) -> ErrorCode:
        """Abort a transaction with its producer fenced. CONCURRENT_TRANSACTIONS: it is under way."""
        refusals: list[ErrorCode] = []

        def on_done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                refusals.append(error)

        self._prepare(partition, txn, transition, on_done, on_done)
        return refusals[0] if refusals else ErrorCode.CONCURRENT_TRANSACTIONS

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        waits_while_busy: bool = True,
    ) -> Answer[ErrorCode]:
        """Make partitions, of which the caller knows that they exist, part of the producer's transaction.

        ``waits_while_busy``: whether a busy id is waited for before the answer is CONCURRENT_TRANSACTIONS.
        """
        outcome = self._try_add(transactional_id, producer, partitions, client_version)
        if outcome is ErrorCode.CONCURRENT_TRANSACTIONS and waits_while_busy:
            return self._add_when_settled(transactional_id, producer, partitions, client_version)
        return outcome

    async def _add_when_settled(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        for _ in range(_SETTLE_ATTEMPTS):
            if not await self._settled(transactional_id):
                break
            outcome = self._try_add(transactional_id, producer, partitions, client_version)
            if outcome is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return outcome if isinstance(outcome, ErrorCode) else await outcome
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _try_add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        partition, txn = found
        decision = decide_add_partitions(txn, producer, partitions, self._wall_clock(), client_version=client_version)
        if isinstance(decision, ErrorCode):
            return decision
        reply: Reply[ErrorCode] = Reply()
        self._states.append(partition, txn, decision, reply)
        return self._in_time(reply, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def refuse_unknown_topic(self, transactional_id: str, producer: ProducerIdAndEpoch) -> ErrorCode:
        """What to answer for a partition that is not known, instead of adding it.

        It may have been created a moment ago, so the client is to try again. But clients do that without end, and a
        topic that was deleted does not come back: after the time that a transaction may last it is told so.
        """
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        _, txn = found
        error = check_producer(txn.metadata, producer)
        if error is not ErrorCode.NONE:
            return error
        now_ms = self._wall_clock()
        if txn.unknown_topic_since_ms == NO_TIMESTAMP:
            txn.unknown_topic_since_ms = now_ms
        if now_ms - txn.unknown_topic_since_ms > txn.metadata.timeout_ms:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the leader of each partition may append the first batch of this transaction."""
        found = self._find(transactional_id)
        verdict = found if isinstance(found, ErrorCode) else verify_partitions(found[1], producer, partitions)
        return dict.fromkeys(partitions, verdict) if isinstance(verdict, ErrorCode) else verdict

    # EndTxn

    def end_txn(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> Answer[EndTxnResult]:
        """Commit or abort the producer's transaction, by the protocol of the client's version."""
        request = _EndTxn(transactional_id, producer, commit, client_version)
        outcome = self._try_end(request, NO_PRODUCER_ID)
        return self._end_with_new_producer_id(request) if isinstance(outcome, Missing) else outcome

    async def _end_with_new_producer_id(self, request: _EndTxn) -> EndTxnResult:
        try:
            producer_id = await self._producer_ids.next()
        except StoreUnavailable:
            return EndTxnResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER)
        outcome = self._try_end(request, producer_id)
        assert not isinstance(outcome, Missing)
        return outcome if isinstance(outcome, EndTxnResult) else await outcome

    def _try_end(self, request: _EndTxn, new_producer_id: int) -> EndTxnResult | asyncio.Future[EndTxnResult] | Missing:
        transactional_id, producer, commit, client_version = request
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return EndTxnResult(found, NO_PRODUCER)
        partition, txn = found
        now_ms = self._wall_clock()
        decision = decide_with_producer_id(
            lambda producer_id: decide_end_txn(
                txn, producer, commit, now_ms, client_version=client_version, new_producer_id=producer_id
            ),
            new_producer_id,
            self._producer_ids.next_nowait,
        )
        if isinstance(decision, Missing):
            return decision
        if isinstance(decision, ErrorCode):
            return EndTxnResult(decision, NO_PRODUCER if decision else txn.metadata.producer)
        reply: Reply[EndTxnResult] = Reply()
        ended = EndTxnResult(ErrorCode.NONE, producer_when_complete(decision))

        def on_prepared(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(EndTxnResult(error, NO_PRODUCER))
            elif not reply.is_given:
                self._completion_waits.add(lambda: reply(ended))

        def on_complete(error: ErrorCode) -> None:
            reply(ended)  # Even if the partition was lost meanwhile: what was decided is durable.

        self._prepare(partition, txn, decision, on_prepared, on_complete)
        return self._in_time(reply, EndTxnResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_PRODUCER))

    def _prepare(
        self,
        partition: OwnedPartition,
        txn: Transaction,
        transition: Transition,
        on_prepared: OnDone,
        on_complete: OnDone,
    ) -> None:
        """Append Prepare*, and see to it that Complete* follows. ``on_complete`` may come before ``on_prepared``."""

        def on_done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._complete(partition, txn, on_complete)
            on_prepared(error)

        self._states.append(partition, txn, transition, on_done)

    def _complete(self, partition: OwnedPartition, txn: Transaction, on_complete: OnDone) -> None:
        """Prepare* is durable: send the markers, then append Complete*."""
        prepared = txn.metadata
        txn.begin(decide_completion(txn, self._wall_clock()))
        self._markers.send(
            PendingMarkers(
                transactional_id=txn.transactional_id,
                log_partition=partition.index,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                commit=prepared.state is TransactionState.PREPARE_COMMIT,
                transaction_version=prepared.client_transaction_version,
                coordinator_epoch=partition.coordinator_epoch,
                partitions=prepared.partitions,
                on_done=lambda: self._append_completion(partition, txn, on_complete, 1),
            )
        )

    def _append_completion(
        self, partition: OwnedPartition, txn: Transaction, on_complete: OnDone, attempt: int
    ) -> None:
        def again() -> None:
            if self._states.owns(partition):
                self._append_completion(partition, txn, on_complete, attempt + 1)

        def on_refused(error: ErrorCode) -> None:
            self._completion_retries.add(attempt, again)

        self._states.append_begun(partition, txn, on_complete, on_refused)

    # Without a request

    def _complete_prepared(self, partition: OwnedPartition, prepared: list[Transaction]) -> None:
        for txn in prepared:
            logger.info("completing %s after the load of %s", txn, partition)
            self._complete(partition, txn, _ignore)

    # For operators

    def describe(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        """What is durable of an id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        partition = self._states.partition_of(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        txn = partition.transactions.get(transactional_id)
        if txn is None or not txn.metadata.exists_in_log:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return txn.metadata

    def list_transactions(self, wanted: TransactionFilter) -> list[Transaction] | ErrorCode:
        """Those of the ids of this broker's partitions that the filter lets pass."""
        if self._states.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return wanted.select(self._states.all_transactions(), self._wall_clock())

    def open_transactions(self) -> Iterator[Transaction]:
        """The ids of this broker's partitions that have an ongoing transaction."""
        for partition in self._states.open_partitions():
            yield from partition.ongoing.values()

    @property
    def is_loading(self) -> bool:
        """Whether a partition of the transaction log is still being read, so that its ids are not served yet."""
        return self._states.is_loading

    @property
    def timed_out_count(self) -> int:
        """How many transactions this coordinator has aborted because they were open for too long."""
        return self._sweeps.timed_out_count

    # What requests share

    def _find(self, transactional_id: str) -> tuple[OwnedPartition, Transaction] | ErrorCode:
        """A known transactional id and its open partition."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        partition = self._states.partition_of(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        txn = partition.transactions.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if txn is None else (partition, txn)

    async def _settled(self, transactional_id: str) -> bool:
        """Wait until nothing is pending for an id. False: it took longer than an answer may wait for that."""
        partition = self._states.partition_of(transactional_id)
        txn = None if isinstance(partition, ErrorCode) else partition.transactions.get(transactional_id)
        if txn is None or txn.pending is None:
            return True
        settled: Reply[bool] = Reply()
        answer = settled.answer()
        assert isinstance(answer, asyncio.Future)

        def wake() -> None:
            settled(True)

        txn.waiters[wake] = None
        key = self._busy_waits.add(lambda: settled(False))
        try:
            return await answer
        finally:
            self._busy_waits.cancel(key)
            txn.waiters.pop(wake, None)

    def _in_time(self, reply: Reply[_T], too_late: _T) -> _T | asyncio.Future[_T]:
        """The reply, or a future of it that does not wait longer than clients do."""
        answer = reply.answer()
        if isinstance(answer, asyncio.Future):
            key = self._request_timeouts.add(lambda: reply(too_late))
            answer.add_done_callback(lambda _: self._request_timeouts.cancel(key))
        return answer


def _granted(producer: ProducerIdAndEpoch) -> InitProducerIdResult:
    return InitProducerIdResult(ErrorCode.NONE, producer)


def _refused(error: ErrorCode) -> InitProducerIdResult:
    return InitProducerIdResult(error, NO_PRODUCER)


def _ignore(error: ErrorCode) -> None:
    """Nobody waits for this one."""
