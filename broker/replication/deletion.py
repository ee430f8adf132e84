"""What became of a request to delete the records of a partition below an offset."""

from typing import NamedTuple


class Deletion(NamedTuple):
    """The offset below which records are deleted, and the low watermark of all live replicas."""

    up_to: int
    low_watermark: int
