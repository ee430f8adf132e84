"""Tables of Spark's catalog: ``CREATE TABLE … USING oncelog OPTIONS (…)``.

Spark 4.3 passes a table's options to the data source when it requests the schema of a new table, but not when the
table is read: then it passes the schema from the catalog, and only the options of ``WITH (…)``. The catalog keeps the
metadata of columns with the schema. So the schema of a table has the table's options in the metadata of its first
column, as JSON, and they are read from there. DataFrames that are loaded with options have no such metadata.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from oncelog.spark_connector.columnar.columns import Columns
from oncelog.spark_connector.options import SECOND_COPY, SPARKS_OWN
from oncelog.spark_connector.reading.spark_schema import spark_schema

_METADATA: Final = "oncelog.options"


def table_schema(columns: Columns, options: Mapping[str, str]) -> StructType:
    """Return the schema of a new table, with the table's options in it."""
    own = {
        name.lower(): value
        for name, value in options.items()
        if name.lower() not in SPARKS_OWN and not name.lower().startswith(SECOND_COPY)
    }
    schema = spark_schema(columns)
    schema.fields[0].metadata = {_METADATA: json.dumps(own, sort_keys=True)}
    return schema


def table_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: the given ones, then those of its table."""
    stored: dict[str, str] = {}
    for field in schema.fields:
        if _METADATA in (field.metadata or {}):
            stored = json.loads(field.metadata[_METADATA])
    return {**stored, **{name.lower(): value for name, value in options.items()}}
