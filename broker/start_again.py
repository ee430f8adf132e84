"""A start that begins again when the connection to the metadata store breaks in the middle of it.

A broker that runs bears that. A start that has met it is undone as a whole, and begun again, because what it had read
may be out of date. A store that cannot be reached at all ends the start after the connection time-out.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from oncelog.coordinator.metadata_store.store import ConnectionLost, SessionExpired

T = TypeVar("T")

_MOST_STARTS: Final = 5

logger = logging.getLogger(__name__)


async def start_again(start: Callable[[], Awaitable[T]]) -> T:
    """Return what a start returns. Raise what the last one raises, or any other exception at once."""
    for _ in range(_MOST_STARTS - 1):
        try:
            return await start()
        except (ConnectionLost, SessionExpired) as error:
            logger.warning("The broker starts again, as the connection to the metadata store broke: %s", error)
    return await start()
