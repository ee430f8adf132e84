"""What requests wait for, and for how long: a durable record, a busy transactional id, a producer id.

A client that must wait longer than ``request_timeout_ms`` gets COORDINATOR_NOT_AVAILABLE, which says nothing about the
outcome: it retries. For a busy id a request waits ``busy_wait_ms``: a client that gets CONCURRENT_TRANSACTIONS backs
off for longer than most transactions take to complete.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.ports import ProducerIdSource
from oncelog.coordinator.promise import Promise, Undecided, settle, value_of
from oncelog.coordinator.timers import Deadlines
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import NO_PRODUCER_ID, Missing
from oncelog.coordinator.transaction.state_manager import Commit, TransactionStateManager
from oncelog.protocol.errors import ErrorCode

T = TypeVar("T")

_ATTEMPTS: Final = 4
"""Two are needed to abort a predecessor's transaction and go on; more where several producers use one id."""

Attempt: TypeAlias = Callable[[int], T | asyncio.Future[T] | Missing]
"""Decide a request, with a new producer id or with NO_PRODUCER_ID."""
Refuse: TypeAlias = Callable[[ErrorCode], T]
"""Return the result that carries an error."""


class RequestWaits:
    """The requests of one transaction coordinator that wait."""

    def __init__(
        self, config: TransactionConfig, producer_ids: ProducerIdSource, states: TransactionStateManager
    ) -> None:
        self._producer_ids = producer_ids
        self._states = states
        self._busy_waits = Deadlines(config.busy_wait_ms)
        self._request_timeouts = Deadlines(config.request_timeout_ms)

    def stop(self) -> None:
        """Run no more timers."""
        self._busy_waits.stop()
        self._request_timeouts.stop()

    def when_durable(self, commit: Commit | ErrorCode, shape: Callable[[ErrorCode], T]) -> T | asyncio.Future[T]:
        """Return the shaped outcome of an append, or a future of it."""
        error = commit if isinstance(commit, ErrorCode) else commit.value
        if error is not None:
            return shape(error)
        assert isinstance(commit, Commit)
        response = self.response(partial(shape, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        commit.then(lambda error: settle(response, shape(error)))
        return response

    def response(self, too_late: Callable[[], T]) -> asyncio.Future[T]:
        """Return a future for a response, which becomes ``too_late()`` after ``request_timeout_ms``."""
        response: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        key = self._request_timeouts.add(lambda: settle(response, too_late()))
        response.add_done_callback(lambda _: self._request_timeouts.cancel(key))
        return response

    def with_producer_id(self, attempt: Attempt[T], refuse: Refuse[T]) -> Undecided[T]:
        """Decide a request that lacks a producer id, once there is one."""
        return Undecided(partial(self._reserve_and_decide, attempt, refuse))

    def until_idle(
        self,
        transactional_id: str,
        attempt: Attempt[T],
        refuse: Refuse[T],
        outcome: T | asyncio.Future[T] | Missing,
    ) -> Undecided[T]:
        """Decide a request again whose first outcome was that its id is busy or that it lacks a producer id."""
        return Undecided(partial(self._retry, transactional_id, attempt, refuse, outcome))

    async def _reserve_and_decide(self, attempt: Attempt[T], refuse: Refuse[T]) -> T:
        outcome = await self._attempt_with_producer_id(attempt, refuse)
        assert not isinstance(outcome, Missing), "one producer id is enough"
        return await value_of(outcome)

    async def _retry(
        self,
        transactional_id: str,
        attempt: Attempt[T],
        refuse: Refuse[T],
        outcome: T | asyncio.Future[T] | Missing,
    ) -> T:
        """Wait for what the last attempt lacked, and decide again."""
        busy = refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        for _ in range(_ATTEMPTS):
            if isinstance(outcome, Missing):
                outcome = await self._attempt_with_producer_id(attempt, refuse)
            elif await self._is_idle_in_time(transactional_id):
                outcome = attempt(NO_PRODUCER_ID)
            else:
                break
            if not isinstance(outcome, Missing) and outcome != busy:
                return await value_of(outcome)
        return busy

    async def _attempt_with_producer_id(
        self, attempt: Attempt[T], refuse: Refuse[T]
    ) -> T | asyncio.Future[T] | Missing:
        try:
            producer_id = await self._producer_ids.next()
        except StoreUnavailable:
            return refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return attempt(producer_id)

    async def _is_idle_in_time(self, transactional_id: str) -> bool:
        """Wait until nothing is pending for an id. False: it took longer than ``busy_wait_ms``."""
        txn = self._states.find(transactional_id)
        if txn is None or txn.pending is None:
            return True
        idle: Promise[bool] = Promise()

        def wake() -> None:
            idle.complete(True)

        txn.waiters[wake] = None
        key = self._busy_waits.add(lambda: idle.complete(False))
        try:
            return await idle.future()
        finally:
            self._busy_waits.cancel(key)
            txn.waiters.pop(wake, None)
