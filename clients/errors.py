"""What can go wrong between a client and its cluster.

Two kinds. When no answer comes at all, that is an exception of this module, named after what happened. When a broker
answers with an ``ErrorCode``, functions that ask about several things return it as a value beside the others, and
functions that ask about one thing raise ``BrokerRefused``.
"""

from dataclasses import dataclass

from protocol.errors import ErrorCode


class ClientError(Exception):
    """The base of everything below."""


class Unreachable(ClientError):
    """A connection could not be made."""


class NoBrokerReachable(Unreachable):
    """Not even one of the addresses that are known answers."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came. Whether the request was carried out is unknown."""


class RequestTimedOut(ClientError):
    """No answer came in time. Whether the request was carried out is unknown."""


class BadResponse(ClientError):
    """The other side does not speak the protocol, or not this request's part of it."""


class VersionNotSupported(ClientError):
    """The broker serves no version of this API that can be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error that a broker answered, and its words for it if it had any."""

    error: ErrorCode
    message: str | None = None

    def __str__(self) -> str:
        return f"{self.error.name}: {self.message}" if self.message else self.error.name


class BrokerRefused(ClientError):
    """A broker answered that it will not."""

    def __init__(self, subject: str, refusal: Refusal) -> None:
        super().__init__(f"{subject}: {refusal}")
        self.subject = subject
        self.refusal = refusal


def error_code(number: int) -> ErrorCode:
    """The code for a response's number; a number from a future Kafka reads as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, message: str | None = None) -> Refusal | None:
    """The refusal that a response's error fields are; None for success."""
    return None if number == ErrorCode.NONE else Refusal(error=error_code(number), message=message or None)


def require_success(subject: str, number: int, message: str | None = None) -> None:
    """Raise ``BrokerRefused`` unless the response's error number says success."""
    refused = refusal(number, message)
    if refused is not None:
        raise BrokerRefused(subject, refused)
