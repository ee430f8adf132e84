"""The settings of the transaction coordinator, under the names of Kafka's keys where Kafka has them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Kafka's defaults where Kafka has them."""

    max_timeout_ms: int = 900_000
    max_ids: int = 300_000
    """Transactional ids that this broker keeps."""
    max_id_length: int = 1_024
    """Characters of a transactional id that is not in the log yet."""
    transactional_id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    request_timeout_ms: int = 30_000
    completion_wait_ms: int = 5
    """How long the response of EndTxn waits for the transaction to complete."""
    busy_wait_ms: int = 100
    """How long InitProducerId and AddPartitionsToTxn wait for a busy id."""
    challenges_connections: bool = True
    """Whether a version-1 request over another connection than the last one must be repeated."""
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000
