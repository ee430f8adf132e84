"""Which PySpark the connector needs. Pure."""

import re
from typing import Final

from oncelog.spark_connector.plain_errors import UserError

MINIMUM: Final = (4, 2)
"""The first release that calls ``latestOffset(start, limit)`` of a stream, with a limit."""


class UnsupportedSpark(UserError):
    """The version of PySpark is too old for the connector."""


def require_spark(version: str) -> None:
    """Raise ``UnsupportedSpark`` if ``version`` (``4.1.0``, ``4.2.0.dev1``) is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < MINIMUM:
        needed = ".".join(map(str, MINIMUM))
        raise UnsupportedSpark(f"format oncelog needs PySpark {needed} or later; this is {version}")
