"""``OncelogDataSource``: what Spark asks for when somebody says ``format("oncelog")``. Nothing but doors.

An instance lives in a planner process of the driver and is pickled to others, so it holds only the options. What
stands behind a door is imported when it is opened: a batch read never loads the streaming sink.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class OncelogDataSource(DataSource):
    """The format ``oncelog``: topics of a Kafka-compatible cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from spark_connector.writer import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from spark_connector.stream_writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
