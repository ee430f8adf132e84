"""A committed position: the offset of the next record to read, and what its committer noted beside it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``leader_epoch`` is that of the last record read, -1 if it is not known; ``metadata`` is the committer's own."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
