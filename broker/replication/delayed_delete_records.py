"""A DeleteRecords whose response waits until every live replica has deleted the requested records.

The leader's log start moves at once; followers receive it with their next fetch response, and send their own log start
with the fetch after that. A partition that is not confirmed within the client's timeout gets REQUEST_TIMED_OUT; its
records are deleted all the same.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse

UNKNOWN_LOW_WATERMARK: Final = -1


class Undeleted(NamedTuple):
    """One partition of the response whose followers may still have records below ``offset``."""

    partition: LeadingPartition
    offset: int
    result: DeleteRecordsPartitionResult


class DelayedDeleteRecords:
    """Waits for all of its partitions, at most for the client's timeout."""

    __slots__ = ("_future", "_response", "_timer", "_waiting")

    def __init__(self, response: DeleteRecordsResponse) -> None:
        self._response = response
        self._waiting: dict[_Waiter, None] = {}

    def start(self, undeleted: Sequence[Undeleted], timeout_ms: int) -> "asyncio.Future[DeleteRecordsResponse]":
        loop = asyncio.get_running_loop()
        self._future: asyncio.Future[DeleteRecordsResponse] = loop.create_future()
        self._timer = loop.call_later(timeout_ms / 1000, self._time_out)
        self._future.add_done_callback(lambda _: self._stop())  # Also when the connection gave it up.
        self._waiting = dict.fromkeys(_Waiter(self, partition) for partition in undeleted)
        for waiter in list(self._waiting):
            waiter.of.partition.when_deleted(waiter.of.offset, waiter)
        return self._future

    def deleted(self, waiter: "_Waiter", error: ErrorCode) -> None:
        if waiter not in self._waiting:
            return
        del self._waiting[waiter]
        _settle(waiter.of, error)
        if not self._waiting:
            self._respond()

    def _respond(self) -> None:
        if not self._future.done():
            self._future.set_result(self._response)

    def _time_out(self) -> None:
        for waiter in self._waiting:
            _settle(waiter.of, ErrorCode.REQUEST_TIMED_OUT)
        self._stop()
        self._respond()

    def _stop(self) -> None:
        self._timer.cancel()
        for waiter in self._waiting:
            waiter.of.partition.forget_deletion_waiter(waiter)
        self._waiting.clear()


class _Waiter:
    """The callback of one partition."""

    __slots__ = ("_delayed", "of")

    def __init__(self, delayed: DelayedDeleteRecords, of: Undeleted) -> None:
        self._delayed = delayed
        self.of = of

    def __call__(self, error: ErrorCode) -> None:
        self._delayed.deleted(self, error)


def _settle(undeleted: Undeleted, error: ErrorCode) -> None:
    result = undeleted.result
    result.error_code = error
    result.low_watermark = UNKNOWN_LOW_WATERMARK if error else undeleted.partition.progress.low_watermark
