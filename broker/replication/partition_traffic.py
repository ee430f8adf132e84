"""What was appended to a partition and read from it on this broker."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PartitionTraffic:
    """Counts since this broker has the replica."""

    messages_in: int = 0
    """Records that were appended while this broker led."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes of batches in responses to fetches."""
