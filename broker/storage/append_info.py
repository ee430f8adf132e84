"""``AppendInfo``: what an append to a partition's log returns."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple


class AppendInfo(NamedTuple):
    """What an append did, or did before when ``duplicate``."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic uses it."""
    log_start_offset: int
    duplicate: bool


new_append_info: Final[Callable[[tuple[int, int, int, int, int, bool]], AppendInfo]] = partial(
    tuple.__new__, AppendInfo
)
"""Makes it of its fields without the detour of its constructor: every append makes one."""
