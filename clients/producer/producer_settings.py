"""The settings that ``Producer`` takes as keyword arguments."""

from typing import Literal, TypedDict

from oncelog.clients.producer.producer_config import Acks, Partitioner, TransactionProtocol


class ProducerSettings(TypedDict, total=False):
    """The fields of ``ProducerConfig``, for type checkers."""

    bootstrap: str
    client_id: str
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_protocol: TransactionProtocol
    enable_idempotence: bool
    acks: Acks | Literal["-1", -1, 0, 1]
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    max_request_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    max_in_flight: int
    metadata_max_age_ms: int
    partitioner: Partitioner | None
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT"]
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_username: str | None
    sasl_password: str | None
