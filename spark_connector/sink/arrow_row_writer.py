"""A task's rows: collected until they are worth encoding together, encoded, and sent.

Spark passes up to 10,000 rows at a time; spread over many partitions these would make small batches. Rows that were
sent and are not acknowledged take at most the producer's buffer: above that the task waits, and with it Spark.
"""

from typing import Final

import pyarrow as pa

from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.spark_connector.columnar.arrow_encoder import ArrowEncoder, RowsInvalid, rows_of
from oncelog.spark_connector.sink.batch_producer import BatchProducer
from oncelog.spark_connector.sink.commit.sink_broker import Written
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction

_COLUMNS: Final = ("key", "value", "headers", "topic", "partition")
_ROWS_AT_ONCE: Final = 50_000
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024


class ArrowRowWriter:
    """``RowWriter``, over a producer that has been started."""

    def __init__(self, producer: BatchProducer, encoder: ArrowEncoder, transactional_id: str) -> None:
        self._producer = producer
        self._encoder = encoder
        self._transactional_id = transactional_id
        self._collected: list[pa.RecordBatch] = []
        self._collected_rows = 0
        self._collected_bytes = 0
        self._rows = 0
        self._size = 0

    @property
    def transaction(self) -> TaskTransaction:
        producer = self._producer
        return TaskTransaction(self._transactional_id, producer.producer_id, producer.epoch, producer.version)

    async def write(self, rows: "pa.RecordBatch") -> None:
        """Send a batch from Spark; columns that are not the sink's are left out."""
        rows = rows.select([name for name in rows.schema.names if name in _COLUMNS])
        self._collected.append(rows)
        self._collected_rows += rows.num_rows
        self._collected_bytes += rows.nbytes
        if self._collected_rows >= _ROWS_AT_ONCE or self._collected_bytes >= _BYTES_AT_ONCE:
            await self._send()

    async def finish(self) -> Written:
        if self._collected:
            await self._send()
        try:
            await self._producer.flush()
        except BrokerRefused as error:
            raise _explained(error) from error
        return Written(self._rows, self._size, self._producer.written_topics())

    async def leave(self) -> None:
        await self._producer.stop()

    async def abort(self) -> None:
        await self._producer.abort()
        await self._producer.stop()

    async def _send(self) -> None:
        collected, self._collected = self._collected, []
        self._collected_rows = self._collected_bytes = 0
        rows = rows_of(_one_batch(collected))
        counts = await self._producer.partition_counts(self._encoder.topics_of(rows))
        try:
            for encoded in self._encoder.encode(rows, counts):
                await self._producer.append(encoded.topic_partition, encoded.records, encoded.record_count)
                self._size += len(encoded.records)
            await self._producer.yield_to_sender()
        except BrokerRefused as error:
            raise _explained(error) from error
        self._rows += len(rows)


def _one_batch(batches: "list[pa.RecordBatch]") -> "pa.RecordBatch":
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _explained(error: BrokerRefused) -> Exception:
    if error.refusal.error is ErrorCode.MESSAGE_TOO_LARGE:
        return RowsInvalid(f"a row is larger than max.message.bytes of its topic allows ({error})")
    return error
