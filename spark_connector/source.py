"""``OncelogDataSource``: the class that Spark makes an instance of for ``format("oncelog")``.

An instance belongs to a planner process of the driver and is pickled to others, so it holds only the options. Readers
and writers are imported when they are made: a batch read never loads the streaming sink.
"""

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from oncelog.spark_connector.spark_version import require_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class OncelogDataSource(DataSource):
    """The format ``oncelog``: topics of a Kafka-compatible cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def schema(self) -> "StructType":
        from oncelog.spark_connector.plain_errors import plain_errors
        from oncelog.spark_connector.reading.read_options import read_columns
        from oncelog.spark_connector.reading.spark_schema import spark_schema

        with plain_errors():
            require_spark(pyspark.__version__)
            columns = read_columns(self.options)
            if "provider" in self.options:  # Only the catalog sets it.
                from oncelog.spark_connector.reading.catalog_table import table_schema

                return table_schema(columns, self.options)
        return spark_schema(columns)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from oncelog.spark_connector.plain_errors import plain_errors
        from oncelog.spark_connector.reading.catalog_table import table_options
        from oncelog.spark_connector.reading.read_options import read_options
        from oncelog.spark_connector.reading.reader import (
            SPARK_KEEPS_PLANS_APART,
            OncelogFilteringReader,
            OncelogReader,
        )

        with plain_errors():
            require_spark(pyspark.__version__)
            options = read_options(
                table_options(schema, self.options), streaming=False, spark_keeps_plans_apart=SPARK_KEEPS_PLANS_APART
            )
            options.columns.check(_fields(schema))
        return OncelogFilteringReader(options) if options.push_filters else OncelogReader(options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from oncelog.spark_connector.plain_errors import plain_errors
        from oncelog.spark_connector.reading.catalog_table import table_options
        from oncelog.spark_connector.reading.read_options import read_options
        from oncelog.spark_connector.reading.stream_reader import OncelogStreamReader

        with plain_errors():
            require_spark(pyspark.__version__)
            options = read_options(table_options(schema, self.options), streaming=True)
            options.columns.check(_fields(schema))
        return OncelogStreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from oncelog.spark_connector.plain_errors import plain_errors
        from oncelog.spark_connector.sink.writer import make_writer

        with plain_errors():
            require_spark(pyspark.__version__)
            writer = make_writer(self.options, schema, overwrite)
            writer.session()  # Connects here: Spark shows an error of pickling as a PicklingError.
        return writer

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from oncelog.spark_connector.plain_errors import plain_errors
        from oncelog.spark_connector.sink.stream_writer import make_stream_writer

        with plain_errors():
            require_spark(pyspark.__version__)
            writer = make_stream_writer(self.options, schema, overwrite)
            writer.session()
        return writer


def _fields(schema: "StructType") -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
