"""Oncelog as a data source of PySpark: ``format("oncelog")`` of ``read``, ``readStream``, ``write``, ``writeStream``.

``clients`` inside Spark: Python processes that Spark starts, forks and kills talk to the brokers themselves. What is to
be done is decided by pure functions on the driver; executors only read ranges of offsets and write batches of records.
"""
