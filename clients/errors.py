"""What can go wrong between a client and its cluster.

Two kinds. When no response comes at all, an exception of this module is raised, named after what happened. When a
broker returns an ``ErrorCode``, functions about several things return it as a value beside the others, and functions
about one thing raise ``BrokerRefused``.

Each exception says by its ``remedy`` what its receiver can do; the classes are those of KIP-1050::

    RETRY        the same call may succeed another time                      (RetriableException)
    ABORT        abort the transaction; the producer goes on                 (TransactionAbortableException)
    RESTART      fatal: close this client, and begin again with a new one    (ApplicationRecoverableException)
    RECONFIGURE  fatal until a setting, a permission or the code is changed  (InvalidConfigurationException)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

from oncelog.protocol.errors import RETRIABLE, ErrorCode

E = TypeVar("E", bound=BaseException)


class Remedy(Enum):
    """What helps against an error (KIP-1050)."""

    RETRY = "retry"
    ABORT = "abort"
    RESTART = "restart"
    RECONFIGURE = "reconfigure"


def restore(kind: type[E], args: tuple[Any, ...]) -> E:
    """Make an exception as it was pickled: its arguments are its text, not those of its constructor."""
    return kind.__new__(kind, *args)


class ClientError(Exception):
    """The base of everything below. It can be pickled, whatever the constructor of a subclass takes."""

    remedy: ClassVar[Remedy] = Remedy.RESTART

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), self.args), self.__dict__

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed another time."""
        return self.remedy is Remedy.RETRY

    @property
    def is_abortable(self) -> bool:
        """Whether aborting the transaction is enough to go on with the same producer."""
        return self.remedy is Remedy.ABORT

    @property
    def is_fatal(self) -> bool:
        """Whether the client that raised it is of no more use."""
        return not (self.is_retriable or self.is_abortable)


class IllegalState(ClientError):
    """Called at the wrong time, such as a commit without a transaction. Nothing was changed."""

    remedy = Remedy.RECONFIGURE


class ClientClosed(ClientError):
    """The client was closed before this was done."""


class Unreachable(ClientError):
    """A connection could not be made."""

    UNRESOLVED = "cannot be resolved"
    """In the message, if this machine finds no address for the name of a host."""

    remedy = Remedy.RETRY


class BrokerSilent(Unreachable):
    """A connection was accepted, and nothing was said on it: a process listens there that is stopped or stuck."""

    EVENT = "accepts connections, but does not respond"
    CAUSES = ": the process there is stopped or overloaded, or is no Kafka broker"
    """The end of the message."""


class BrokerAbsent(Unreachable):
    """No broker of the cluster has this id now."""

    @classmethod
    def among(cls, broker_id: int, known: Iterable[int]) -> "BrokerAbsent":
        """Return the error that names the brokers that there are."""
        there = ", ".join(map(str, sorted(known)))
        return cls(f"broker {broker_id} is not in the cluster now, which has brokers {there or 'unknown'}")


class NoBrokerReachable(Unreachable):
    """None of the known addresses responds."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent
        """Whether connections are accepted at one of the addresses."""


class TlsFailed(ClientError):
    """A connection was refused while it was being secured: a certificate that is not trusted, or not the right one."""

    remedy = Remedy.RECONFIGURE

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(f"{message}: {advice}" if advice else message)
        self.advice = advice
        """What to set instead: the end of the message."""


class AuthenticationFailed(ClientError):
    """A broker does not accept this client's login, or does not prove that it knows the password itself."""

    remedy = Remedy.RECONFIGURE

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice
        """What to set instead; empty if that is not known."""


NO_CONNECTION: Final = (Unreachable, TlsFailed, AuthenticationFailed)
"""What an attempt to connect to one broker raises."""


class ConnectionLost(ClientError):
    """The connection ended before the response came. Whether the request was carried out is unknown."""

    remedy = Remedy.RETRY


class RequestTimedOut(ClientError):
    """No response came in time. Whether the request was carried out is unknown."""

    remedy = Remedy.RETRY


class BadResponse(ClientError):
    """The other side does not speak the protocol, or not this request's part of it."""


class VersionNotSupported(ClientError):
    """The broker serves no version of this API that can be sent."""

    remedy = Remedy.RECONFIGURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error that a broker returned, with its message if there is one."""

    error: ErrorCode
    message: str | None = None
    cause: ClientError | None = field(default=None, compare=False, repr=False)
    """What happened instead of a response, if none came; ``error`` is this client's word for it then."""
    is_for_others: bool = field(default=False, compare=False, repr=False)
    """Whether other records of its batch are the reason that a record was refused (KIP-467)."""

    @classmethod
    def without_response(cls, cause: ClientError) -> "Refusal":
        """Return what stands beside the responses of other brokers where none came."""
        is_too_old = isinstance(cause, VersionNotSupported)
        error = ErrorCode.UNSUPPORTED_VERSION if is_too_old else ErrorCode.NETWORK_EXCEPTION
        return cls(error=error, message=str(cause), cause=cause)

    def as_error(self, subject: str) -> ClientError:
        """Return the exception for a request about one thing: no broker has refused it if no response came."""
        return self.cause or BrokerRefused(subject, self)

    def __str__(self) -> str:
        return f"{self.error.name}: {self.message}" if self.message else self.error.name


class BrokerRefused(ClientError):
    """A broker refused a request. The remedy follows from the error code."""

    def __init__(self, subject: str, refusal: Refusal) -> None:
        super().__init__(f"{subject}: {refusal}")
        self.subject = subject
        self.refusal = refusal

    @property
    def remedy(self) -> Remedy:  # type: ignore[override]  # One class for all codes.
        """What makes the call succeed, from the error code of the refusal."""
        error = self.refusal.error
        if error in RETRIABLE:
            return Remedy.RETRY
        if error == ErrorCode.TRANSACTION_ABORTABLE:
            return Remedy.ABORT
        return Remedy.RECONFIGURE if error in _NEEDS_CHANGE else Remedy.RESTART


_NEEDS_CHANGE = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Codes whose exception in the Java client is an ``InvalidConfigurationException``, and their kin."""


class OperationTimedOut(ClientError):
    """A call timed out. What it requested may still happen: call again to wait for it."""

    remedy = Remedy.RETRY


class BackgroundTaskFailed(ClientError):
    """A background task of this client failed, for the reason in ``__cause__``. The client has started it again."""

    remedy = Remedy.RETRY


class ProducerError(ClientError):
    """What only a producer raises."""


class BufferFull(ProducerError):
    """``send_nowait`` would have to wait: for buffer space, or for a topic's metadata. Nothing was sent."""

    remedy = Remedy.RETRY


class RecordTooLarge(ProducerError):
    """A record that no request may hold, by ``max_request_bytes``; a broker's own limit is a ``BrokerRefused``."""

    remedy = Remedy.RECONFIGURE


class DeliveryTimedOut(ProducerError):
    """A record was not acknowledged within the delivery time-out.

    ``maybe_written`` says whether it was sent: then it may be in the log, and sending it again may duplicate it.
    """

    remedy = Remedy.RETRY

    def __init__(self, message: str, *, maybe_written: bool, last_error: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.maybe_written = maybe_written
        self.last_error = last_error
        """The error of the last attempt; None if there was none, or no response."""


class OutcomeUnknown(ProducerError):
    """A record whose acknowledgement was lost, and which cannot be sent again without the risk of a duplicate."""

    remedy = Remedy.RETRY


class ProducerClosed(ProducerError, ClientClosed):
    """The producer was closed before this was done."""


class TransactionAborted(ProducerError):
    """The transaction of this record was aborted before it was sent."""

    remedy = Remedy.ABORT


class TransactionAbortable(ProducerError):
    """The transaction cannot be committed any more. Its cause says why; abort it, and begin another."""

    remedy = Remedy.ABORT


class CommitFailed(ClientError):
    """A group does not accept offsets from this member or generation: it has lost its partitions to others."""

    remedy = Remedy.ABORT


class FatalProducerError(ProducerError):
    """The producer has failed for good. The cause says why; close it."""


class ProducerFenced(FatalProducerError):
    """Another producer took over the transactional id, or the coordinator ended the transaction by itself."""


class NotAuthorized(FatalProducerError):
    """The broker does not permit the request. The same producer may retry once it is permitted."""

    remedy = Remedy.RECONFIGURE


def error_code(number: int) -> ErrorCode:
    """Return the code of a response's number; UNKNOWN_SERVER_ERROR for a number of a future Kafka."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, message: str | None = None) -> Refusal | None:
    """Return the refusal in a response's error fields; None for success."""
    return None if number == ErrorCode.NONE else Refusal(error=error_code(number), message=message or None)


def require_success(subject: str, number: int, message: str | None = None) -> None:
    """Raise ``BrokerRefused`` unless the response's error number says success."""
    refused = refusal(number, message)
    if refused is not None:
        raise BrokerRefused(subject, refused)
