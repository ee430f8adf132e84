"""``Rejoining``: a controller whose work failed joins the cluster again, with exponential backoff.

Until it has joined it is not the controller, and refuses requests with NOT_CONTROLLER, so that clients look for
another one. There is one exception: the metadata store of a broker that is alone may have no room for what is to be
written. No other broker would do better then, so that clients get KAFKA_STORAGE_ERROR and the remedy.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from oncelog.coordinator.controller.api_error import NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.controller_context import ControllerMoved
from oncelog.coordinator.controller.membership import BrokerIdTaken
from oncelog.coordinator.metadata_store.store import StoreFull, StoreUnavailable
from oncelog.coordinator.metadata_store.znodes import MalformedZnode
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 0.1
_LONGEST_RETRY_SECONDS: Final = 5.0


class Rejoining:
    """The attempts of one broker's controller. ``join`` makes one."""

    def __init__(self, broker_id: int, rng: random.Random, join: Callable[[], None]) -> None:
        self._broker_id = broker_id
        self._rng = rng
        self._join = join
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = _FIRST_RETRY_SECONDS
        self.refusal = NOT_CONTROLLER
        """The response to clients while this broker is not the controller."""

    def failed(self, error: BaseException) -> None:
        """Log why the controller's work failed, and join again some time later."""
        self._log(error)
        self.refusal = refusal_of(error)
        if self._timer is None:
            delay = self._seconds * self._rng.uniform(0.5, 1.0)
            self._seconds = min(2 * self._seconds, _LONGEST_RETRY_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self._try)

    def _log(self, error: BaseException) -> None:
        if isinstance(error, StoreFull):
            if self.refusal is NOT_CONTROLLER:  # Else it has been said, and is tried again and again.
                logger.error(
                    "Broker %d refuses changes of topics and configurations until there is room: %s",
                    self._broker_id,
                    error,
                )
        elif isinstance(error, ControllerMoved | StoreUnavailable | BrokerIdTaken):
            logger.warning("The controller of broker %d restarts: %s", self._broker_id, error)
        elif isinstance(error, MalformedZnode):
            logger.error("Broker %d cannot be controller: %s", self._broker_id, error)
        else:
            logger.error("The controller of broker %d failed and restarts", self._broker_id, exc_info=error)

    def joined(self) -> None:
        """Note that the broker has joined: the next failure is retried after the shortest delay."""
        if self.refusal is not NOT_CONTROLLER:
            logger.info("Broker %d accepts changes of topics and configurations again", self._broker_id)
        self.refusal = NOT_CONTROLLER
        self._seconds = _FIRST_RETRY_SECONDS

    def cancel(self) -> None:
        """Make no further attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try(self) -> None:
        self._timer = None
        self._join()


def refusal_of(error: BaseException) -> ApiError:
    """Return the response of a client's request that met this error, or whose controller did."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) if isinstance(error, StoreFull) else NOT_CONTROLLER
