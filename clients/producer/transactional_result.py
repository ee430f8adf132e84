"""The result of a call of a transactional producer, for the caller that waits and for a repeated call. Pure."""

from collections.abc import Callable

from oncelog.clients.errors import ClientError


class TransactionalResult:
    """A result that is done once, with or without an error, and acknowledged when its caller has seen that."""

    __slots__ = ("_observers", "error", "is_acknowledged", "is_done", "operation", "response_lost")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_done = False
        self.is_acknowledged = False
        self.error: ClientError | None = None
        self.response_lost = False
        """Whether a request for this result had no response, and was repeated."""
        self._observers: list[Callable[[], object]] = []

    def succeed(self) -> None:
        self._finish(None)

    def fail(self, error: ClientError) -> None:
        self._finish(error)

    def _finish(self, error: ClientError | None) -> None:
        if self.is_done:
            return
        self.is_done = True
        self.error = error
        observers, self._observers = self._observers, []
        for observer in observers:
            observer()

    def when_done(self, observer: Callable[[], object]) -> None:
        """Call ``observer`` once the result is done; now, if it is."""
        if self.is_done:
            observer()
        else:
            self._observers.append(observer)

    def acknowledge(self) -> None:
        """Note that the caller has seen the result. Raises the error if there is one."""
        self.is_acknowledged = True
        if self.error is not None:
            raise self.error.with_traceback(None)
