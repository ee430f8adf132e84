"""The outcome of one item of an administrative request: an error code, and a message for the client.

A message may quote the request, a name of 32,767 bytes for example. It is cut so that a response can carry it.
"""

from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode

LONGEST_MESSAGE: Final = 2_000
"""Characters; four times as many bytes are still a string of the protocol."""


class _CodeAndMessage(NamedTuple):
    code: ErrorCode
    message: str | None


class ApiError(_CodeAndMessage):
    """``code`` NONE means success."""

    __slots__ = ()

    def __new__(cls, code: ErrorCode, message: str | None = None) -> "ApiError":
        if message is not None and len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        return super().__new__(cls, code, message)


NO_ERROR: Final = ApiError(ErrorCode.NONE)
NOT_CONTROLLER: Final = ApiError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
TIMED_OUT: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, "It was done, but not all brokers know of it in time.")
UNFINISHED: Final = ApiError(
    ErrorCode.REQUEST_TIMED_OUT,
    "It was not finished in time, because the metadata store does not respond or is slow. It may be done yet.",
)
