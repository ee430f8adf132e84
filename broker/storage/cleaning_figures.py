"""What the cleaner of a data directory measures of its rounds and passes (Kafka: LogCleaner, LogCleanerManager)."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class CleaningFigures:
    """All None before the first round, or the first pass."""

    last_round_ms: int | None = None
    """When the last round ended, by the wall clock."""
    highest_dirty_ratio: float | None = None
    """Of the logs that were worth a pass when the last round began; 0 if none was."""
    pass_seconds: float | None = None
    """How long the last pass took."""
    recopied_ratio: float | None = None
    """Bytes that the last pass kept, of those that it read."""
    buffer_utilization: float | None = None
    """Keys that the last pass noted, of those that it had room for."""
