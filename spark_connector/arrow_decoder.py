"""Record batches into Arrow."""

from collections.abc import Iterator

import pyarrow as pa

from clients.consumer.aborted_ranges import AbortedRanges
from protocol.records.record_batch import iter_records
from spark_connector.columns import Columns
from spark_connector.offset_ranges import OffsetRange
from spark_connector.partition_fetcher import FetchedBatches

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}


def arrow_schema(columns: Columns) -> pa.Schema:
    return pa.schema([(name, _TYPES[name]) for name in columns.names])


class ArrowDecoder:
    def __init__(self, offset_range: OffsetRange, columns: Columns, *, check_crcs: bool) -> None:
        self._range = offset_range
        self._columns = columns
        self._schema = arrow_schema(columns)

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        aborted = AbortedRanges(fetched.aborted)
        rows = []
        for at, header in fetched.batches:
            if not aborted.shows(fetched.buffer, at, header):
                continue
            for record in iter_records(fetched.buffer, at, header, max_decompressed_bytes=1 << 30):
                if self._range.start <= record.offset < self._range.end:
                    rows.append(
                        {
                            "key": record.key,
                            "value": record.value,
                            "topic": self._range.topic,
                            "partition": self._range.partition,
                            "offset": record.offset,
                            "timestamp": record.timestamp * 1000,
                            "timestampType": int(header.is_log_append_time),
                            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                        }
                    )
        if rows:
            yield pa.RecordBatch.from_pylist(
                [{n: r[n] for n in self._columns.names} for r in rows], schema=self._schema
            )
