"""The settings that ``Admin`` takes as keyword arguments."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypedDict


class AdminSettings(TypedDict, total=False):
    """The fields of ``AdminConfig``, for type checkers."""

    bootstrap: str
    client_id: str
    connect_timeout_ms: int
    default_api_timeout_ms: int
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_type: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: Literal["https", "none", ""]
    ssl_enabled_protocols: tuple[str, ...] | None
    ssl_cipher_suites: tuple[str, ...] | None
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_tokenauth: bool
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: str | None
    sasl_oauthbearer_token_provider: Callable[[], str | Awaitable[str]] | None
