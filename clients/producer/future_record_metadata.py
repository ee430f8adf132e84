"""The future of a record's ``RecordMetadata``, which a producer returns when it accepts the record.

There is one for each record, so it is light: it refers to a batch and an index in it, and creates an asyncio future
only when it is awaited. It is done when its batch is; cancelling a wait cancels nothing else.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from oncelog.clients.errors import IllegalState
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.record_metadata import RecordMetadata


class FutureRecordMetadata:
    """``await`` it for the ``RecordMetadata``, or the ``ClientError`` that the record failed with."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """Return where the record is. Raises its error, and ``IllegalState`` if it is not done."""
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self) -> Exception | None:
        """Return the error of the record, None if it was acknowledged. Raises ``IllegalState`` if it is not done."""
        if not self._batch.is_done:
            raise IllegalState("the record is not done yet: await its future first")
        return self._batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[["FutureRecordMetadata"], object]) -> None:
        """Have the running loop call ``callback`` with this future once it is done."""
        loop = asyncio.get_running_loop()
        self._batch.when_done(lambda: loop.call_soon(callback, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            waiter = asyncio.get_running_loop().create_future()
            self._batch.when_done(lambda: None if waiter.done() else waiter.set_result(None))
            yield from waiter.__await__()
        return self.result()

    def __repr__(self) -> str:
        state = "done" if self._batch.is_done else "in flight"
        return f"<record {self._index} of a batch for {self._batch.topic_partition}, {state}>"
