"""How long a coordinator took to load partitions (Kafka: partition-load-time)."""


class LoadTimes:
    """The times since the start, in milliseconds: from an election until the partition is served."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0

    def note(self, seconds: float) -> None:
        """Add the time of one partition."""
        self.count += 1
        self.total_ms += seconds * 1000
        self.max_ms = max(self.max_ms, seconds * 1000)
