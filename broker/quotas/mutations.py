"""``Mutations``: the partitions that one request may create or delete (KIP-599).

A request costs a token for each partition. A strict one is refused, topic by topic, while there is a debt; others
have their way. Either is throttled for as long as the debt lasts.
"""

from collections.abc import Callable
from typing import Final

from oncelog.broker.quotas.client_quota import BucketQuota
from oncelog.broker.quotas.limits import Limit
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.errors import ErrorCode

_EXCEEDED: Final = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Mutations:
    """What one request may still do. Times are seconds of the loop's clock."""

    __slots__ = ("_clock", "_is_strict", "_limit", "_quota", "_until")

    def __init__(self, quota: BucketQuota, limit: Limit | None, clock: Callable[[], float], *, is_strict: bool) -> None:
        self._quota = quota
        self._clock = clock
        self._limit = limit
        """None: everything."""
        self._is_strict = is_strict
        self._until = float("-inf")

    def admit(self, partitions: int) -> ApiError | None:
        """Count partitions that the request is about to create or delete; return why it must not, or None."""
        limit, quota = self._limit, self._quota
        if limit is None:
            return None
        now = self._clock()
        debt = quota.delay(limit, now)
        refused = self._is_strict and debt > 0
        if not refused:
            debt = quota.use(limit, partitions, now)
        if debt > 0 and (refused or not self._is_strict):
            self._until = now + debt
        return _EXCEEDED if refused else None

    def give_back(self, partitions: int) -> None:
        """Count partitions no more: they were admitted, and could not be created."""
        if self._limit is not None:
            self._quota.use(self._limit, -partitions, self._clock())

    def delay(self) -> float:
        """Return for how many seconds the client is to wait."""
        return max(0.0, self._until - self._clock())
