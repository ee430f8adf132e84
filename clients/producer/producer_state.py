"""The state machine of a producer: ``NEXT_STATES`` is its table, ``ProducerState`` one producer's place in it. Pure."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

from oncelog.clients.errors import ClientError, FatalProducerError, IllegalState, TransactionAbortable

E = TypeVar("E", bound=ClientError)


class State(Enum):
    """The states of a producer; one without transactions knows only the first three, and the last."""

    UNINITIALIZED = "no producer id has been requested"
    INITIALIZING = "a producer id, or its next epoch, has been requested"
    READY = "a transaction may begin"
    IN_TRANSACTION = "records and offsets become part of the transaction"
    COMMITTING_TRANSACTION = "the transaction commits once all its records are written"
    ABORTING_TRANSACTION = "the transaction aborts once every request of it that was sent has a response"
    ABORTABLE_ERROR = "the transaction can only be aborted"
    FATAL_ERROR = "the producer can only be closed"


OPEN_TRANSACTION: Final = frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR})
"""The states of a transaction that the application has neither committed nor aborted."""
_WHAT_TO_CALL: Final[Mapping[State, str]] = {
    State.UNINITIALIZED: "call init_transactions first",
    State.INITIALIZING: "init_transactions has not ended",
    State.READY: "call begin_transaction first",
    State.IN_TRANSACTION: "commit or abort the transaction first",
    State.COMMITTING_TRANSACTION: "commit_transaction has not ended",
    State.ABORTING_TRANSACTION: "abort_transaction has not ended",
    State.ABORTABLE_ERROR: "call abort_transaction first",
    State.FATAL_ERROR: "begin anew with another producer",
}
"""The remedy for a call that is not possible in a state."""

NEXT_STATES: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.COMMITTING_TRANSACTION: frozenset(
        {State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.ABORTING_TRANSACTION: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING_TRANSACTION, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}


class ProducerState:
    """The state of one producer, the error behind an error state, and what the two allow."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.current = State.UNINITIALIZED
        self.cause: ClientError | None = None
        """The error that led to one of the two error states."""
        self.accepts_records = not is_transactional
        """Whether a record may be sent now."""
        self._is_transactional = is_transactional

    def move(self, state: State, operation: str) -> None:
        """Change to a state that ``NEXT_STATES`` allows. Raises ``IllegalState`` in the name of ``operation``."""
        if state not in NEXT_STATES[self.current]:
            raise IllegalState(f"{operation} is not possible now: {self._remedy(state)} ({self._change_to(state)})")
        self.current = state
        self.cause = None
        self.accepts_records = (
            state is State.IN_TRANSACTION if self._is_transactional else state is not State.FATAL_ERROR
        )

    def _remedy(self, state: State) -> str:
        if state is State.INITIALIZING and self.current is State.READY:
            return "it is called once, before the first transaction"
        return self.what_to_call

    def _change_to(self, state: State) -> str:
        return f"{self.current.name} to {state.name}"

    @property
    def what_to_call(self) -> str:
        """The remedy for a call that is not possible in the current state."""
        return _WHAT_TO_CALL[self.current]

    def error(self) -> ClientError | None:
        """Return the exception for any call in an error state; None in the other states.

        ``TransactionAbortable`` in ``ABORTABLE_ERROR``; a ``FatalProducerError`` of the class of the cause in
        ``FATAL_ERROR``.
        """
        if self.current is State.ABORTABLE_ERROR:
            return caused(TransactionAbortable(f"the transaction must be aborted: {self.cause}"), self.cause)
        if self.current is not State.FATAL_ERROR:
            return None
        kind = type(self.cause) if isinstance(self.cause, FatalProducerError) else FatalProducerError
        return caused(kind(f"the producer cannot go on: {self.cause}"), self.cause)

    def require_no_error(self) -> None:
        """Raise the exception of an error state."""
        error = self.error()
        if error is not None:
            raise error from self.cause

    def require_records_accepted(self) -> None:
        """Raise why no record may be sent now, if so."""
        self.require_no_error()
        if not self.accepts_records:
            raise IllegalState(f"no record can be sent outside of a transaction: {self.what_to_call}")


def caused(error: E, cause: ClientError | None) -> E:
    """Return an exception with its cause set."""
    error.__cause__ = cause
    return error
