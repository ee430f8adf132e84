"""Outcomes of administrative requests."""

from oncelog.coordinator.controller.api_error import LONGEST_MESSAGE, ApiError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.primitives import MAX_STRING_BYTES


def test_message_that_quotes_a_name_can_always_be_encoded() -> None:
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{'ü' * MAX_STRING_BYTES}' does not exist.")
    assert error.message is not None
    assert error.message.startswith("The topic 'üü")
    assert len(error.message) == LONGEST_MESSAGE
    assert len(("\U0001f4a5" * LONGEST_MESSAGE).encode()) <= MAX_STRING_BYTES


def test_short_message_stays_and_success_has_none() -> None:
    assert ApiError(ErrorCode.NONE).message is None
    assert ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") == (
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )
