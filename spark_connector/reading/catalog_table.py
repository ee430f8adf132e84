"""Tables of Spark's catalog: ``CREATE TABLE … USING oncelog OPTIONS (…)``.

Spark 4.3 passes a table's options to the data source when it requests the schema of a new table, but not when the
table is read: then it passes the schema from the catalog, and only the options of ``WITH (…)``. The catalog keeps the
metadata of columns with the schema. So the schema of a table has the table's options in the metadata of its first
column, as JSON, and they are read from there. DataFrames that are loaded with options have no such metadata.

Everyone who may describe the table can read them there, so passwords and private keys are refused.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from oncelog.spark_connector.columnar.columns import Columns
from oncelog.spark_connector.options import SECOND_COPY, SPARKS_OWN
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.reading.spark_schema import spark_schema
from oncelog.spark_connector.security_options import SECRET_OPTIONS

_METADATA: Final = "oncelog.options"


def table_schema(columns: Columns, options: Mapping[str, str]) -> StructType:
    """Return the schema of a new table, with the table's options in it. Raises ``UserError`` for secrets."""
    own = {
        name.lower(): value
        for name, value in options.items()
        if name.lower() not in SPARKS_OWN and not name.lower().startswith(SECOND_COPY)
    }
    secrets = sorted(own.keys() & SECRET_OPTIONS)
    if secrets:
        raise UserError(
            f"{', '.join(secrets)}: would be kept in the catalog, where everyone who may describe the table can read "
            "it: give it to each query, FROM the table WITH (…), or create a temporary view"
        )
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
