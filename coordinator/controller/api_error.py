"""The outcome of one item of an administrative request: an error code, and a sentence for whoever asked."""

from typing import Final, NamedTuple

from protocol.errors import ErrorCode


class ApiError(NamedTuple):
    """``code`` NONE means success."""

    code: ErrorCode
    message: str | None = None


NO_ERROR: Final = ApiError(ErrorCode.NONE)
NOT_CONTROLLER: Final = ApiError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
