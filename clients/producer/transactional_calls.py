"""The order of the calls that change the state of a transactional producer: one at a time, each until its end is seen.

Pure. A call that timed out is still being carried out. The application calls the same again to wait on, and until that
returns or raises, no other call is possible.
"""

from typing import Final

from oncelog.clients.errors import ClientError, IllegalState
from oncelog.clients.producer.transactional_result import TransactionalResult

INITIALIZE: Final = "init_transactions"


class TransactionalCalls:
    """The latest call of ``init_transactions``, ``commit_transaction`` and ``abort_transaction``."""

    def __init__(self) -> None:
        self._latest: TransactionalResult | None = None

    def repeated(self, operation: str) -> TransactionalResult | None:
        """Return the result of the latest call if this call repeats it; None if this is a new call.

        Raises ``IllegalState`` if another call has to be repeated first.
        """
        if self._latest is not None and not self._latest.is_acknowledged and self._latest.operation == operation:
            return self._latest
        self.require_acknowledged(operation)
        return None

    def require_acknowledged(self, operation: str) -> None:
        """Raise ``IllegalState`` if the latest call has to be repeated before ``operation``."""
        if self._latest is not None and not self._latest.is_acknowledged:
            raise IllegalState(f"{operation} must wait: {self._latest.operation} timed out and has to be called again")

    def begin(self, operation: str) -> TransactionalResult:
        """Return the result of a new call."""
        self._latest = TransactionalResult(operation)
        return self._latest

    @property
    def pending_end(self) -> TransactionalResult | None:
        """The result of the latest call while it is a commit or an abort that is not done."""
        latest = self._latest
        return None if latest is None or latest.is_done or latest.operation == INITIALIZE else latest

    def fail(self, error: ClientError) -> None:
        """Fail the latest call, unless it is done."""
        if self._latest is not None:
            self._latest.fail(error)
