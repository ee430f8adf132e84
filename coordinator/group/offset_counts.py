"""What became of offsets at one group coordinator (Kafka: offset-commit-count and others)."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class OffsetCounts:
    """Counts of offsets since the start."""

    committed: int = 0
    """Written to the log, pending ones of transactions too."""
    expired: int = 0
    """Removed because they were not used for ``offsets.retention.minutes``."""
    deleted: int = 0
    """Removed by a request to delete them, or their group."""
