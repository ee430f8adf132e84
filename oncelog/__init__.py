"""Oncelog: a Kafka-compatible broker that keeps exactly-once, its Python client and its PySpark data source.

In the repository the packages ``oncelog.broker``, ``oncelog.clients`` and so on are symbolic links to the folders of
that name beside this one. A wheel has the files themselves.
"""
