"""The settings that ``Admin`` takes as keyword arguments."""

from typing import Literal, TypedDict


class AdminSettings(TypedDict, total=False):
    """The fields of ``AdminConfig``, for type checkers."""

    bootstrap: str
    client_id: str
    connect_timeout_ms: int
    default_api_timeout_ms: int
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT"]
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_username: str | None
    sasl_password: str | None
