"""The work that a producer finishes while it is being closed: records to deliver, a transaction to end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from oncelog.clients.obstacles import Obstacle
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_state import OPEN_TRANSACTION
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transactional_result import TransactionalResult

_log = logging.getLogger(__name__)

_SECONDS_IF_CANCELLED: Final = 5.0
"""The default timeout of ``close`` in a task that is being cancelled, as after Ctrl-C."""
_SLOW_SECONDS: Final = 1.0
"""The time after which the work that is left is logged."""


def close_seconds(config: ProducerConfig) -> float:
    """Return the default timeout of ``close`` in the current task."""
    seconds = (config.delivery_timeout_ms + config.max_block_ms) / 1000
    closing = asyncio.current_task()
    is_cancelled = closing is not None and closing.cancelling() > 0
    return min(seconds, _SECONDS_IF_CANCELLED) if is_cancelled else seconds


class UnfinishedWork:
    """The work of one producer. ``wake`` wakes its sender; ``flush`` and ``obstacles`` are those of the producer."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        manager: TransactionManager,
        wake: Callable[[], None],
        *,
        flush: Callable[[], Awaitable[None]],
        obstacles: Callable[[], list[Obstacle]],
    ) -> None:
        self._client_id = config.client_id
        self._accumulator = accumulator
        self._manager = manager
        self._wake = wake
        self._flush = flush
        self._obstacles = obstacles

    async def finish(self, seconds: float) -> None:
        """Deliver all records, then end the transaction. Log what is left after 1 s and after ``seconds``, the most."""
        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._log_slow, seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._finish()
        except TimeoutError:
            level = logging.INFO if seconds < _SLOW_SECONDS else logging.WARNING
            message = "producer %s: close() has waited %g s, and gives up %s"
            _log.log(level, message, self._client_id, seconds, self.description())
        finally:
            slow.cancel()

    async def _finish(self) -> None:
        await self._flush()
        pending = self._manager.calls.pending_end
        if pending is not None:
            await until_done(pending)
        if self._manager.state.current in OPEN_TRANSACTION:
            result = self._manager.abort()
            self._wake()
            await until_done(result)

    def _log_slow(self, seconds: float) -> None:
        obstacles = "; ".join(map(str, self._obstacles())) or "the brokers are slow"
        message = "producer %s: close() waits at most %g s for %s (%s); close(timeout_seconds=...) shortens that"
        _log.warning(message, self._client_id, seconds, self.description(), obstacles)

    def description(self) -> str:
        """Return the work that is left, for log lines."""
        work = []
        records = sum(batch.record_count for batch in self._accumulator.incomplete)
        if records:
            work.append(f"the acknowledgement of {records} {'record' if records == 1 else 'records'}")
        pending = self._manager.calls.pending_end
        if pending is not None:
            work.append(f"{pending.operation} of {self._manager.transactional_id!r}")
        elif self._manager.state.current in OPEN_TRANSACTION:
            work.append(f"abort_transaction of {self._manager.transactional_id!r}")
        return " and ".join(work)


async def until_done(result: TransactionalResult) -> None:
    """Return when a result is done."""
    done = asyncio.Event()
    result.when_done(done.set)
    await done.wait()
