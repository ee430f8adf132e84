"""The settings that ``Admin`` takes as keyword arguments."""

from typing import TypedDict


class AdminSettings(TypedDict, total=False):
    """The fields of ``AdminConfig``, for type checkers."""

    bootstrap: str
    client_id: str
    connect_timeout_ms: int
    default_api_timeout_ms: int
