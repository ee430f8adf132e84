"""Tables of Spark's catalog: ``CREATE TABLE … USING oncelog OPTIONS (…)``.

Spark 4.3 gives a table's options to the data source when it asks for the schema of a new table, and forgets them when
the table is read: then it hands over the schema from the catalog, and only what ``WITH (…)`` says. But it keeps the
schema with all that is in it. So the schema of a table has the table's options in the metadata of its first column, as
JSON, and they are read from there. DataFrames that are loaded with options have no such metadata.
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
    """The schema of a new table, with the table's options."""
    own = {
        name.lower(): value
        for name, value in options.items()
        if name.lower() not in SPARKS_OWN and not name.lower().startswith(SECOND_COPY)
    }
    schema = spark_schema(columns)
    schema.fields[0].metadata = {_METADATA: json.dumps(own, sort_keys=True)}
    return schema


def table_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options of what is read: those that are given go before those of its table."""
    stored: dict[str, str] = {}
    for field in schema.fields:
        if _METADATA in (field.metadata or {}):
            stored = json.loads(field.metadata[_METADATA])
    return {**stored, **{name.lower(): value for name, value in options.items()}}
