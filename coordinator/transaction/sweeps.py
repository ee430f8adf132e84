"""What the transaction coordinator does without a request: it aborts what is open for too long, and expires ids.

Both run at an interval, over the partitions that this broker owns at that moment. An abort fences the producer, and in
version 2 that may take a new producer id. If none is at hand one is reserved, and as soon as it is there the sweep for
time-outs runs once more.
"""

import asyncio
import logging
from collections.abc import Callable

from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.ports import FinalizedFeatures, ProducerIdSource, TaskOwner, WallClock
from oncelog.coordinator.transaction.completion import Ending, TransactionCompletion
from oncelog.coordinator.transaction.state import (
    NO_PRODUCER_ID,
    Missing,
    Transaction,
    TransactionMetadata,
    Transition,
    decide_timeout,
    decide_with_producer_id,
)
from oncelog.coordinator.transaction.state_manager import TransactionStateManager
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class Sweeps:
    """Both sweeps, from ``start`` to ``stop``."""

    def __init__(
        self,
        *,
        states: TransactionStateManager,
        producer_ids: ProducerIdSource,
        tasks: TaskOwner,
        wall_clock: WallClock,
        features: FinalizedFeatures,
        completion: TransactionCompletion,
        transactional_id_expiration_ms: int,
    ) -> None:
        self._states = states
        self._producer_ids = producer_ids
        self._tasks = tasks
        self._wall_clock = wall_clock
        self._features = features
        self._completion = completion
        self._expiration_ms = transactional_id_expiration_ms
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._is_reserving = False
        self.timed_out_count = 0
        """How many transactions were aborted since the start because they took too long."""

    def start(self, abort_interval_ms: int, expire_interval_ms: int) -> None:
        """Sweep from now on; for the first time after an interval."""
        self._repeat(self.abort_timed_out, abort_interval_ms)
        self._repeat(self.expire, expire_interval_ms)

    def stop(self) -> None:
        """Stop both sweeps."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _repeat(self, sweep: Callable[[], None], interval_ms: int) -> None:
        def run() -> None:
            self._timers[sweep] = loop.call_later(interval_ms / 1000, run)
            sweep()

        loop = asyncio.get_running_loop()
        self._timers[sweep] = loop.call_later(interval_ms / 1000, run)

    def abort_timed_out(self, new_producer_id: int = NO_PRODUCER_ID) -> None:
        """Abort each transaction that was open for longer than its producer allowed.

        A deserted coordinator has refused the producer's own EndTxn, so it lets the transaction be for the time.
        """
        for partition in self._states.open_partitions():
            if partition.log.is_deserted:
                continue
            for txn in list(partition.ongoing.values()):
                decision = self._decide_timeout(txn, new_producer_id)
                if decision is Missing.PRODUCER_ID:
                    self._reserve()
                elif isinstance(decision, TransactionMetadata):
                    cause = f"open for more than {txn.metadata.timeout_ms} ms"
                    logger.info("%s was %s: aborting it", txn, cause)
                    if decision.next_producer_id == new_producer_id:
                        new_producer_id = NO_PRODUCER_ID
                    ending = self._completion.end(partition, txn, decision._replace(cause=cause))
                    if isinstance(ending, Ending):
                        ending.prepared.then(self._count)

    def _count(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.timed_out_count += 1

    def _decide_timeout(self, txn: Transaction, new_producer_id: int) -> Transition | Missing | None:
        now_ms, version = self._wall_clock(), self._features.transaction_version
        return decide_with_producer_id(
            lambda producer_id: decide_timeout(txn, now_ms, transaction_version=version, new_producer_id=producer_id),
            new_producer_id,
            self._producer_ids.next_nowait,
        )

    def _reserve(self) -> None:
        """Sweep again with a new producer id, as soon as there is one. One reservation is enough for all."""

        async def reserve() -> None:
            try:
                producer_id = await self._producer_ids.next()
            except StoreUnavailable:
                return  # The next sweep tries again.
            finally:
                self._is_reserving = False
            self.abort_timed_out(producer_id)

        if not self._is_reserving:
            self._is_reserving = True
            self._tasks.spawn(reserve(), "reserve a producer id for a transaction that timed out")

    def expire(self) -> None:
        """Expire the transactional ids that were not used for long."""
        for partition in self._states.open_partitions():
            self._states.expire(partition, self._expiration_ms)
