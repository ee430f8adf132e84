"""Our source with filters pushed into it, under a name of its own.

``pushFilters=true`` is refused up to Spark 4.3, since a DataFrame that is used twice is then read by the filter that
was pushed last. One that is used once is not, and shows what becomes of a filter.
"""

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from oncelog.spark_connector.reading.read_options import read_options
from oncelog.spark_connector.reading.reader import OncelogFilteringReader
from oncelog.spark_connector.source import OncelogDataSource


class PushingDataSource(OncelogDataSource):
    """The format ``oncelog-pushing``."""

    @classmethod
    def name(cls) -> str:
        return "oncelog-pushing"

    def reader(self, schema: StructType) -> DataSourceReader:
        return OncelogFilteringReader(read_options(self.options, streaming=False))
