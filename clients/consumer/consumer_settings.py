"""The settings that ``Consumer`` takes as keyword arguments."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypedDict


class ConsumerSettings(TypedDict, total=False):
    """The fields of ``ConsumerConfig``, for type checkers."""

    bootstrap: str
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    isolation_level: Literal["read_committed", "read_uncommitted"]
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_buffered_bytes: int
    max_batch_bytes: int
    max_poll_records: int
    check_crcs: bool
    client_rack: str | None
    allow_auto_create_topics: bool
    metadata_max_age_ms: int
    connect_timeout_ms: int
    request_timeout_ms: int
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
