"""Which PySpark the connector needs. Pure."""

import re
from typing import Final

from oncelog.spark_connector.plain_errors import UserError

MINIMUM: Final = (4, 2)
"""The first release whose streams ask for offsets with a limit (``latestOffset(start, limit)``)."""


class UnsupportedSpark(UserError):
    """This PySpark lacks what the connector needs."""


def require_spark(version: str) -> None:
    """Raise ``UnsupportedSpark`` if ``version`` (``4.1.0``, ``4.2.0.dev1``) is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < MINIMUM:
        needed = ".".join(map(str, MINIMUM))
        raise UnsupportedSpark(f"format oncelog needs PySpark {needed} or later; this is {version}")
