"""The requests to coordinators that are not done: each with its attempts, and all of them in their order. Pure.

Requests are sent one at a time, by priority. Those of one priority keep the order in which they were added, but for
offsets of one consumer group: they are committed in the order of the application's calls, retries included.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from oncelog.clients.errors import ClientError
from oncelog.clients.producer.request_effects import MAYBE_APPLIED
from oncelog.clients.producer.transaction_requests import TransactionRequest
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import ErrorCode


@dataclass(eq=False, slots=True)
class PendingRequest:
    """One request, what is known of its attempts, and the result that waits for it."""

    request: TransactionRequest
    result: TransactionalResult
    attempts: int = 0
    """How often the request was sent."""
    maybe_applied: bool = False
    """Whether an attempt that did not succeed may have been carried out all the same."""
    last_error: ErrorCode = ErrorCode.NONE

    def note_error(self, error: ErrorCode) -> None:
        """Record the error of a response."""
        self.last_error = error
        self.maybe_applied |= error in MAYBE_APPLIED

    def note_loss(self, *, was_sent: bool) -> None:
        """Record that no response came."""
        self.last_error = ErrorCode.NETWORK_EXCEPTION
        self.maybe_applied |= was_sent

    def must_be_decided(self, *, can_bump_epoch: bool) -> bool:
        """Return whether the request has to be repeated before an abort.

        It may have begun the transaction at the coordinator, and then EndTxn has to be sent. Another attempt may show
        that; if none does, an epoch bump ends whatever the request began.
        """
        undecided = self.last_error in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS, *MAYBE_APPLIED)
        return self.request.begins_transaction and self.maybe_applied and (undecided or not can_bump_epoch)

    def may_be_dropped(self, *, can_bump_epoch: bool) -> bool:
        """Return whether an abort can do without the outcome of the request."""
        if self.request.begins_transaction:
            return not self.must_be_decided(can_bump_epoch=can_bump_epoch)
        return self.request.may_be_dropped or not self.attempts


class PendingRequests:
    """The requests that wait to be sent, or to be sent again, in their order."""

    def __init__(self) -> None:
        self._queue: list[PendingRequest] = []

    def __iter__(self) -> Iterator[PendingRequest]:
        return iter(self._queue)

    def add(self, pending: PendingRequest) -> None:
        """Insert a request behind all others of its priority, except for those that it precedes."""
        request = pending.request
        for position, each in enumerate(self._queue):
            if each.request.priority > request.priority or request.precedes(each.request):
                self._queue.insert(position, pending)
                return
        self._queue.append(pending)

    def remove(self, pending: PendingRequest) -> None:
        self._queue.remove(pending)

    def first(self) -> PendingRequest | None:
        """Return the request that is sent next; None if there is none."""
        return self._queue[0] if self._queue else None

    def fail_all(self, error: ClientError) -> None:
        """Fail the results of all requests, and forget the requests."""
        for pending in self._queue:
            pending.result.fail(error)
        self._queue.clear()
