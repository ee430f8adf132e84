"""``LogConfig``: the settings of a topic that apply to its logs, with Kafka's defaults; parsed elsewhere."""

from dataclasses import dataclass, field
from typing import Final

NO_LIMIT: Final = 2**63 - 1
"""Kafka's way to say "never" for flush intervals and lags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Topic-level configuration; attributes are Kafka's keys with underscores."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    flush_interval_messages: int = NO_LIMIT
    flush_interval_ms: int = NO_LIMIT
    max_message_bytes: int = 1024 * 1024 + 12
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    compression_type: str = "producer"
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = NO_LIMIT
    timestamp_after_max_ms: int = 60 * 60 * 1000
    file_delete_delay_ms: int = 60 * 1000
    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    message_downconversion_enable: bool = True
    preallocate: bool = False
    """Accepted and ignored: files here are as long as their content."""
    compacts: bool = field(init=False)
    """Whether ``cleanup_policy`` has "compact"."""
    deletes: bool = field(init=False)
    """Whether ``cleanup_policy`` has "delete"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "compacts", "compact" in self.cleanup_policy)
        object.__setattr__(self, "deletes", "delete" in self.cleanup_policy)

    @property
    def roll_ms(self) -> int:
        """Return the milliseconds for which a segment takes appends.

        With compaction at most ``max_compaction_lag_ms``: the cleaner leaves the active segment alone.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
