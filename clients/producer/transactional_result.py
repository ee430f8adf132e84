"""What became of something asked of the transaction manager, for those who wait and those who ask again. Pure."""

from collections.abc import Callable

from oncelog.clients.errors import ClientError


class TransactionalResult:
    """Done once, with or without an error. ``is_acknowledged`` once its caller has seen that."""

    __slots__ = ("_observers", "error", "is_acknowledged", "is_done", "operation", "response_lost")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_done = False
        self.is_acknowledged = False
        self.error: ClientError | None = None
        self.response_lost = False
        """Whether no response came to one of the requests that were made for it."""
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
        """Call ``observer`` once it is done: now, if it is."""
        if self.is_done:
            observer()
        else:
            self._observers.append(observer)

    def acknowledge(self) -> None:
        """Its caller has seen the end; raises the error if there is one."""
        self.is_acknowledged = True
        if self.error is not None:
            raise self.error.with_traceback(None)
