"""A produce whose records are appended and whose response waits until they are as durable as its acks require.

The response is complete except for the errors of partitions that will not get there: leadership lost, storage failed,
or not enough replicas before the client's timeout. Records of a partition that timed out stay in the log and may well
be replicated later; that is what REQUEST_TIMED_OUT means to a producer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Unacknowledged(NamedTuple):
    """One partition of the response that is not durable enough yet."""

    partition: LeadingPartition
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
        """Adds to a response what follows from its errors: where the new leader is."""
        self._waiting: dict[_Waiter, None] = {}

    def start(self, unacknowledged: Sequence[Unacknowledged], timeout_ms: int) -> asyncio.Future[ProduceResponse]:
        loop = asyncio.get_running_loop()
        self._future: asyncio.Future[ProduceResponse] = loop.create_future()
        self._timer = loop.call_later(timeout_ms / 1000, self._time_out)
        self._future.add_done_callback(lambda _: self._stop())  # Also when the connection gave it up.
        self._waiting = dict.fromkeys(_Waiter(self, partition) for partition in unacknowledged)
        for waiter in list(self._waiting):
            waiter.of.partition.when_acknowledged(waiter.of.end_offset, self._acks, waiter)
        return self._future

    def acknowledged(self, waiter: "_Waiter", error: ErrorCode) -> None:
        if waiter not in self._waiting:
            return
        del self._waiting[waiter]
        if error:
            waiter.of.response.error_code = error
        if not self._waiting:
            self._respond()

    def _respond(self) -> None:
        if not self._future.done():
            self._future.set_result(self._complete(self._response))

    def _time_out(self) -> None:
        for waiter in self._waiting:
            waiter.of.response.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._stop()
        self._respond()

    def _stop(self) -> None:
        self._timer.cancel()
        for waiter in self._waiting:
            waiter.of.partition.forget_waiter(self._acks, waiter)
        self._waiting.clear()


class _Waiter:
    """The callback of one partition."""

    __slots__ = ("_delayed", "of")

    def __init__(self, delayed: DelayedProduce, of: Unacknowledged) -> None:
        self._delayed = delayed
        self.of = of

    def __call__(self, error: ErrorCode) -> None:
        self._delayed.acknowledged(self, error)
