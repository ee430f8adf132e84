"""The effect of each error of a coordinator on a request and on its producer, as a table. Pure.

The effect of an error depends on the request: ``EFFECTS`` has a row for each ``RequestKind``, and an error that a row
does not list is fatal. The table follows the response handlers of Kafka's ``TransactionManager``, with these
differences: an abort that fails is fatal whatever the error; a producer whose first InitProducerId is refused may send
it again; and errors about offsets (their metadata, their topic, the name of the group) end the transaction, not the
producer.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    FatalProducerError,
    NotAuthorized,
    ProducerFenced,
    Refusal,
    TransactionAbortable,
)
from oncelog.protocol.errors import RETRIABLE, ErrorCode


class RequestKind(Enum):
    """The rows of ``EFFECTS``; the values name them in messages of exceptions."""

    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    COMMIT = "EndTxn to commit"
    ABORT = "EndTxn to abort"
    FIND_TRANSACTION_COORDINATOR = "FindCoordinator of a transactional id"
    FIND_GROUP_COORDINATOR = "FindCoordinator of a group"


class Effect(Enum):
    """The effect of an error code on a request and on the producer, from the mildest to the most severe."""

    DONE = "the request was carried out"
    RETRY = "send the request to the same coordinator again, after a backoff"
    FIND_COORDINATOR = "find the coordinator, then send the request again"
    REFUSED = "the call fails, and may be repeated"
    ABORTABLE = "the transaction must be aborted"
    ABORTABLE_BY_BUMP = "the transaction must be aborted and the epoch bumped after it; fatal if it cannot be bumped"
    FENCED = "fatal: another producer with the same transactional id has fenced this one"
    FATAL = "fatal"


_EVERYWHERE: Final[Mapping[ErrorCode, Effect]] = {
    **dict.fromkeys(RETRIABLE, Effect.RETRY),
    ErrorCode.NONE: Effect.DONE,
    ErrorCode.NOT_COORDINATOR: Effect.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Effect.FIND_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: Effect.FENCED,  # Older coordinators return it for PRODUCER_FENCED.
    ErrorCode.PRODUCER_FENCED: Effect.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: Effect.ABORTABLE,
    # Fatal by default; listed because the row of AddPartitionsToTxn has another default.
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Effect.FATAL,
    ErrorCode.INVALID_TXN_STATE: Effect.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Effect.FATAL,
}
_IN_TRANSACTION: Final[Mapping[ErrorCode, Effect]] = {
    **_EVERYWHERE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Effect.ABORTABLE_BY_BUMP,
}
_FIND_COORDINATOR: Final[Mapping[ErrorCode, Effect]] = {
    **dict.fromkeys(RETRIABLE, Effect.RETRY),
    ErrorCode.TRANSACTION_ABORTABLE: Effect.ABORTABLE,
}
EFFECTS: Final[Mapping[RequestKind, Mapping[ErrorCode, Effect]]] = {
    RequestKind.INIT_PRODUCER_ID: {
        **_EVERYWHERE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Effect.REFUSED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Effect.REFUSED,
        ErrorCode.TRANSACTION_ABORTABLE: Effect.REFUSED,
    },
    RequestKind.ADD_PARTITIONS_TO_TXN: {
        **dict.fromkeys(ErrorCode, Effect.ABORTABLE),
        **_IN_TRANSACTION,
    },
    RequestKind.ADD_OFFSETS_TO_TXN: {
        **_IN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
    },
    RequestKind.TXN_OFFSET_COMMIT: {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_PRODUCER_ID: Effect.FATAL,
        ErrorCode.REQUEST_TIMED_OUT: Effect.FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.FENCED_INSTANCE_ID: Effect.ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID: Effect.ABORTABLE,
        ErrorCode.ILLEGAL_GENERATION: Effect.ABORTABLE,
        ErrorCode.GROUP_ID_NOT_FOUND: Effect.ABORTABLE,
        ErrorCode.STALE_MEMBER_EPOCH: Effect.ABORTABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Effect.ABORTABLE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Effect.ABORTABLE,
    },
    RequestKind.COMMIT: _IN_TRANSACTION,
    RequestKind.ABORT: {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_PRODUCER_ID: Effect.FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: Effect.FATAL,
    },
    RequestKind.FIND_TRANSACTION_COORDINATOR: _FIND_COORDINATOR,
    RequestKind.FIND_GROUP_COORDINATOR: {
        **_FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
    },
}
MAYBE_APPLIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,  # Returned while the coordinator's record is not replicated.
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of a request that may have been carried out all the same."""
_GROUP_HAS_MOVED_ON: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_UNAUTHORIZED: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
_SEVERITY: Final = {effect: rank for rank, effect in enumerate(Effect)}


def effect_of(kind: RequestKind, error: ErrorCode) -> Effect:
    """Return the entry of ``EFFECTS`` for an error."""
    return EFFECTS[kind].get(error, Effect.FATAL)


def severity(kind: RequestKind, error: ErrorCode) -> int:
    """Return how severe the effect of an error is, for the choice of one error among those of several partitions."""
    return _SEVERITY[effect_of(kind, error)]


def client_error(kind: RequestKind, refused: Refusal, effect: Effect) -> ClientError:
    """Return the exception for an error code of a coordinator that has this effect."""
    if effect is Effect.FENCED:
        return ProducerFenced(f"{kind.value}: {refused}")
    if refused.error in _GROUP_HAS_MOVED_ON and effect is Effect.ABORTABLE:
        return CommitFailed(f"{kind.value}: {refused}")
    if refused.error in _UNAUTHORIZED:
        return NotAuthorized(f"{kind.value}: {refused}")
    if refused.error == ErrorCode.TRANSACTION_ABORTABLE and effect is not Effect.FATAL:
        return TransactionAbortable(f"{kind.value}: {refused}")
    if effect is Effect.FATAL:
        return FatalProducerError(f"{kind.value}: {refused}")
    return BrokerRefused(kind.value, refused)
