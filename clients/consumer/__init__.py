"""Consuming: what of fetched batches is visible, and reading partitions from given positions."""
