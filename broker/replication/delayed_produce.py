"""A produce whose records are appended and whose answer waits until they are as durable as its acks ask.

The answer is complete except for the errors of partitions that will not get there: leadership lost, storage failed, or
not enough replicas before the client's timeout. Records of a partition that timed out stay in the log and may well be
replicated later; that is what REQUEST_TIMED_OUT means to a producer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.replication.offset_waiters import OnReached
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Unacknowledged(NamedTuple):
    """One partition of the answer that is not durable enough yet."""

    partition: Partition
    end_offset: int
    response: PartitionProduceResponse


class DelayedProduce:
    """Waits for all of its partitions, at most for the client's timeout."""

    __slots__ = ("_acks", "_complete", "_future", "_response", "_timer", "_waiting")

    def __init__(
        self, response: ProduceResponse, *, acks: int, complete: Callable[[ProduceResponse], ProduceResponse]
    ) -> None:
        self._response = response
        self._acks = acks
        self._complete = complete
        """Adds to an answer what follows from its errors: where the new leader is."""
        self._waiting: dict[OnReached, Unacknowledged] = {}

    def start(self, unacknowledged: Sequence[Unacknowledged], timeout_ms: int) -> asyncio.Future[ProduceResponse]:
        loop = asyncio.get_running_loop()
        self._future: asyncio.Future[ProduceResponse] = loop.create_future()
        self._timer = loop.call_later(timeout_ms / 1000, self._time_out)
        self._future.add_done_callback(lambda _: self._stop())  # Also when the connection gave it up.
        for waiter in unacknowledged:
            self._waiting[self._callback_for(waiter)] = waiter
        for callback, waiter in list(self._waiting.items()):
            waiter.partition.when_acknowledged(waiter.end_offset, self._acks, callback)
        return self._future

    def _callback_for(self, waiter: Unacknowledged) -> OnReached:
        def acknowledged(error: ErrorCode) -> None:
            if self._waiting.pop(acknowledged, None) is None:
                return
            if error:
                waiter.response.error_code = error
            if not self._waiting:
                self._answer()

        return acknowledged

    def _answer(self) -> None:
        if not self._future.done():
            self._future.set_result(self._complete(self._response))

    def _time_out(self) -> None:
        for waiter in self._waiting.values():
            waiter.response.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._stop()
        self._answer()

    def _stop(self) -> None:
        self._timer.cancel()
        for callback, waiter in self._waiting.items():
            waiter.partition.forget_waiter(self._acks, callback)
        self._waiting.clear()
