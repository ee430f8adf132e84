"""The deadline of a client's request to the controller, as a time of the event loop."""

import asyncio
from typing import Final

LEAST_SECONDS: Final = 1.0
"""What a request is given at least, whatever its time-out: some clients say 0."""


def deadline(timeout_seconds: float) -> float:
    """Return until when a request is worked on that comes now."""
    return asyncio.get_running_loop().time() + max(timeout_seconds, LEAST_SECONDS)


def seconds_to(until: float) -> float:
    """Return the seconds that are left; negative if the deadline has passed."""
    return until - asyncio.get_running_loop().time()
