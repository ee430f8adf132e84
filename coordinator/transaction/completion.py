"""From Prepare* to Complete*: what follows once the end of a transaction is decided.

Prepare* durable → the markers go out → every partition has its marker → Complete* is appended. From the moment that
Prepare* is durable the transition to Complete* is pending, so the transactional id is busy until then. The log may
refuse Complete* for a while (too few in-sync replicas); then it is tried again, and it is appended once.

After an election the same begins again for every transaction that was found prepared.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from oncelog.coordinator.ports import WallClock
from oncelog.coordinator.timers import Backoff
from oncelog.coordinator.transaction.figures import MarkerQueues, TransactionFigures
from oncelog.coordinator.transaction.marker_sender import MarkerSender, PendingMarkers
from oncelog.coordinator.transaction.state import Transaction, Transition, decide_completion
from oncelog.coordinator.transaction.state_manager import Commit, OwnedPartition, TransactionStateManager
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class Ending(NamedTuple):
    """The two records that end a transaction."""

    prepared: Commit
    completed: Commit
    """Of Complete*, which is appended later than Prepare*, or never if that is lost with the leadership."""

    @property
    def error(self) -> ErrorCode:
        """Return why this broker cannot complete the transaction any more; NONE while it can."""
        return self.prepared.value or self.completed.value or ErrorCode.NONE


class TransactionCompletion:
    """Ends the transactions of this coordinator."""

    def __init__(
        self, states: TransactionStateManager, markers: MarkerSender, retries: Backoff, wall_clock: WallClock
    ) -> None:
        """Retry appends that the log refuses by the backoff ``retries``."""
        self._states = states
        self._markers = markers
        self._retries = retries
        self._wall_clock = wall_clock

    def stop(self) -> None:
        """Send no more markers, and retry no append."""
        self._markers.stop()
        self._retries.stop()

    def figures(self, timed_out_count: int) -> TransactionFigures:
        """Return what this coordinator measures; ``timed_out_count``: transactions that were open for too long."""
        queues = MarkerQueues(len(self._markers), self._markers.leaderless_count(), len(self._retries))
        return TransactionFigures(self._states.load_times, self._states.id_count(), timed_out_count, queues)

    def forget(self, log_partition: int) -> None:
        """Send no more markers for a partition of the transaction log: its leadership has changed."""
        self._markers.forget(log_partition)

    def end(self, partition: OwnedPartition, txn: Transaction, prepare: Transition) -> Ending | ErrorCode:
        """Append Prepare*, and complete the transaction once it is durable. An error: it was not appended."""
        prepared = self._states.append(partition, txn, prepare)
        if isinstance(prepared, ErrorCode):
            return prepared
        completed = Commit()
        prepared.then(partial(self._on_prepared, partition, txn, completed))
        return Ending(prepared, completed)

    def _on_prepared(self, partition: OwnedPartition, txn: Transaction, completed: Commit, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._complete(partition, txn, completed)

    def resume(self, partition: OwnedPartition, prepared: Iterable[Transaction]) -> None:
        """Complete the transactions that were found prepared when the partition was loaded."""
        for txn in prepared:
            logger.info("Completing %s after the load of %s", txn, partition)
            self._complete(partition, txn, Commit())

    def _complete(self, partition: OwnedPartition, txn: Transaction, completed: Commit) -> None:
        """Send the markers of a transaction whose Prepare* is durable, then append Complete*."""
        prepared = txn.metadata
        txn.begin(decide_completion(txn, self._wall_clock()))
        markers = PendingMarkers(
            txn.transactional_id,
            prepared,
            log_partition=partition.index,
            coordinator_epoch=partition.coordinator_epoch,
            decision_offset=txn.last_offset,
        )
        self._markers.send(markers)
        markers.then(partial(self._append, partition, txn, completed, 1))

    def _append(self, partition: OwnedPartition, txn: Transaction, completed: Commit, attempt: int) -> None:
        """Append Complete*; retry while the log refuses it and this broker owns the partition.

        It is retried after an unforeseen exception too, which goes on to the caller, unless it was written.
        """
        complete = txn.pending
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            error = self._states.append_pending(partition, txn, completed)
        finally:
            if error is not ErrorCode.NONE and txn.pending is complete and not completed.is_in_log:
                self._retries.add(attempt, partial(self._retry, partition, txn, completed, attempt + 1))

    def _retry(self, partition: OwnedPartition, txn: Transaction, completed: Commit, attempt: int) -> None:
        if self._states.owns(partition):
            self._append(partition, txn, completed, attempt)
