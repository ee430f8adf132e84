"""What lets Spark find the format ``oncelog`` without ``spark.dataSource.register``.

Spark 4 imports every installed top-level package whose name begins with ``pyspark_`` and registers its
``DefaultSource`` (``pyspark/sql/worker/lookup_data_sources.py``). There is nothing else in here.
"""

from oncelog.spark_connector.source import OncelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
