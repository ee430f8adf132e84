"""A bound for loops that poll a client."""

import time

from tests.interop.drivers.driver import TIMEOUT_SECONDS


class Deadline:
    """Raises once the time limit has passed."""

    def __init__(self, seconds: float = TIMEOUT_SECONDS) -> None:
        self._end = time.monotonic() + seconds  # noqa: TID251

    def check(self, waited_for: str) -> None:
        if time.monotonic() > self._end:  # noqa: TID251
            raise TimeoutError(f"still waiting: {waited_for}")
