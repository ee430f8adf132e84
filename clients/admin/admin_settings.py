"""The settings that ``Admin`` takes as keyword arguments beside an address."""

from typing import TypedDict


class AdminSettings(TypedDict, total=False):
    """The fields of ``AdminConfig`` without ``bootstrap``, for type checkers."""

    client_id: str
    connect_timeout_ms: int
    default_api_timeout_ms: int
