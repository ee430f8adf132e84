"""What a transaction coordinator measures of itself."""

from typing import NamedTuple

from oncelog.coordinator.load_times import LoadTimes


class MarkerQueues(NamedTuple):
    """Decided transactions that are not complete yet, and what of them waits for another attempt."""

    transactions: int
    """Transactions of which some partition waits for its marker."""
    leaderless: int
    """Markers whose partition has no known leader."""
    append_retries: int
    """Transactions whose last record the transaction log has refused."""


class TransactionFigures(NamedTuple):
    """One moment of a coordinator."""

    load_times: LoadTimes
    id_count: int
    timed_out_count: int
    """Transactions that were aborted because they were open for too long, since the start."""
    marker_queues: MarkerQueues
