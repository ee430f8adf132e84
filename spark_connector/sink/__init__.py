"""Writing to topics: Spark's writers, a process's part in them, and the cluster behind the protocol in ``commit``."""
