"""Reads one range of offsets in a task, as Arrow record batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.spark_connector.columnar.columns import Columns
from oncelog.spark_connector.offset_ranges import OffsetRange
from oncelog.spark_connector.process_client import ClientSettings, process_client
from oncelog.spark_connector.reading.read_options import FetchSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """Reads ranges of one query. Picklable: each process uses its own connections."""

    client: ClientSettings
    fetch: FetchSettings
    columns: Columns
    fail_on_data_loss: bool

    def read(self, offset_range: OffsetRange) -> "Iterator[pa.RecordBatch]":
        from oncelog.spark_connector.columnar.arrow_decoder import ArrowDecoder
        from oncelog.spark_connector.reading.partition_fetcher import PartitionFetcher

        client = process_client(self.client)
        client.reach()
        fetcher = PartitionFetcher(
            client.cluster,
            offset_range,
            self.fetch,
            response_seconds=self.client.request_seconds,
            fail_on_data_loss=self.fail_on_data_loss,
        )
        decoder = ArrowDecoder(offset_range, self.columns, check_crcs=self.fetch.check_crcs)
        try:
            while (fetched := client.run(fetcher.next())) is not None:
                yield from decoder.decode(fetched)
        finally:
            fetcher.close()
