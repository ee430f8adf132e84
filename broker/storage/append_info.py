"""What an append to a partition's log answers."""

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """What an append did, or did before when ``duplicate``."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic uses it."""
    log_start_offset: int
    duplicate: bool
