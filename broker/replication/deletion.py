"""What became of a request to delete the records of a partition below an offset."""

from typing import NamedTuple


class Deletion(NamedTuple):
    """What was asked to be deleted, and how far all replicas are."""

    up_to: int
    low_watermark: int
