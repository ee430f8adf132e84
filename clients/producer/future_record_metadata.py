"""What a producer gives back for a record at once: the future of its ``RecordMetadata``.

It is light, because there is one for each record: it names a batch and a place in it, and makes something to wait with
only when somebody waits. Its fate is its batch's; cancelling a wait cancels nothing else.
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
        """Whether it is known what became of the record."""
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """Where the record is. Raises what it failed with, and ``IllegalState`` if that is not known yet."""
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self) -> Exception | None:
        """What the record failed with; None if it did not."""
        if not self._batch.is_done:
            raise IllegalState("the record is still under way")
        return self._batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[["FutureRecordMetadata"], object]) -> None:
        """Have ``callback`` called with this future, by the running loop, once it is done."""
        loop = asyncio.get_running_loop()
        self._batch.when_done(lambda: loop.call_soon(callback, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            waiter = asyncio.get_running_loop().create_future()
            self._batch.when_done(lambda: None if waiter.done() else waiter.set_result(None))
            yield from waiter.__await__()
        return self.result()

    def __repr__(self) -> str:
        state = "done" if self._batch.is_done else "under way"
        return f"<record {self._index} of a batch for {self._batch.topic_partition}, {state}>"
