"""The columns of a read as Spark's types.

Types, not the text of ``Columns.ddl``: in text, ``spark.sql.timestampType`` decides what ``timestamp`` means, but the
time of a record is an instant in every session.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.spark_connector.columnar.columns import HEADERS, Columns


def spark_schema(columns: Columns) -> StructType:
    """Return the schema of what is read."""
    return StructType([StructField(name, _type(name)) for name in columns.names])


def _type(name: str) -> DataType:
    match name:
        case "topic":
            return StringType()
        case "partition" | "timestampType":
            return IntegerType()
        case "offset":
            return LongType()
        case "timestamp":
            return TimestampType()
        case _ if name == HEADERS:
            return ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        case _:
            return BinaryType()
