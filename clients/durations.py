"""Times that callers pass, checked at the call. Pure.

A time-out that is not a number never compares as over: a call with it waits for ever, or ends at once without a reason.
"""

import math


def checked_seconds(seconds: float, name: str) -> float:
    """Return a time-out in seconds. Raises ``ValueError`` below 0 and for inf and nan, ``TypeError`` for no number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} must be a finite number of seconds, 0 or more, not {seconds!r}")
    return seconds


def positive_seconds(seconds: float, name: str) -> float:
    """Return a time in seconds that is above 0. Raises as ``checked_seconds`` does."""
    if checked_seconds(seconds, name) == 0:
        raise ValueError(f"{name} must be more than 0 seconds")
    return seconds


def checked_milliseconds(milliseconds: float, name: str, *, least: int = 1) -> float:
    """Return a setting in milliseconds. Raises ``ValueError`` below ``least`` and for inf and nan, or ``TypeError``."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise TypeError(f"{name} must be a number of milliseconds, not {type(milliseconds).__name__}")
    if not math.isfinite(milliseconds) or milliseconds < least:
        raise ValueError(f"{name} must be a finite number of milliseconds, {least} or more, not {milliseconds!r}")
    return milliseconds
