"""The settings of a producer: Kafka's, with their defaults and bounds.

Names end in the unit; ``KAFKA_NAMES`` has those that Kafka calls otherwise. Two more things differ: ``batch_bytes`` is
four times Kafka's, because for a client in Python a request costs more than its bytes; and ``acks`` other than ``all``
needs ``enable_idempotence=False`` beside it, where Kafka's client switches idempotence off silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from oncelog.clients.arguments import checked_size, checked_text, checked_timeout
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.durations import checked_milliseconds
from oncelog.clients.security_config import SecurityConfig, require_security
from oncelog.protocol.records.compression import Compression

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) to a partition's index."""
Acks: TypeAlias = Literal["all", "1", "0"]
TransactionProtocol: TypeAlias = Literal["auto", "1", "2"]

ACKS: Final[dict[str | int, int]] = {"all": -1, "1": 1, "0": 0}
_SPELT: Final[dict[object, Acks]] = {"-1": "all", -1: "all", 1: "1", 0: "0"}
"""Spellings of acks in other clients."""
_CODECS: Final = tuple(codec.name.lower() for codec in Compression)
_ANY_CODEC: Final = f"{', '.join(_CODECS[:-1])} or {_CODECS[-1]}"
MOST_IN_FLIGHT: Final = 5
"""Brokers remember the last five batches of a producer in a partition, and recognise a retry of only these."""
_LEAST_BATCH_BYTES: Final = 512
_IN_REQUESTS: Final = ("transaction_timeout_ms", "request_timeout_ms")
"""Settings that requests hold as 32-bit integers."""
_POSITIVE: Final = ("batch_bytes", "buffer_bytes", "max_request_bytes", "max_in_flight")
_TIMES: Final = (
    "max_block_ms",
    "delivery_timeout_ms",
    "connect_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "metadata_max_age_ms",
)
KAFKA_NAMES: Final[Mapping[str, str | None]] = {
    "sasl_username": None,
    "sasl_password": None,
    "sasl_oauthbearer_extensions": None,
    "sasl_oauthbearer_token_provider": None,
    "bootstrap": "bootstrap.servers",
    "transaction_protocol": None,
    "compression": "compression.type",
    "batch_bytes": "batch.size",
    "buffer_bytes": "buffer.memory",
    "max_request_bytes": "max.request.size",
    "connect_timeout_ms": "socket.connection.setup.timeout.ms",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "partitioner": "partitioner.class",
}
"""Kafka's names of the settings that are called otherwise here; None where Kafka has no such setting."""


@checked_fields(KAFKA_NAMES)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(SecurityConfig):
    """Settings of one producer. Raises ``ValueError``, with the name of the setting, for an invalid value."""

    bootstrap: str
    """``host:port,host:port``: the brokers to connect to first."""
    client_id: str = "oncelog"
    """The name that brokers log, and meter for quotas."""
    transactional_id: str | None = None
    """Makes the producer transactional; producers with the same id fence each other."""
    transaction_timeout_ms: int = 60_000
    """Time after which the coordinator aborts an open transaction; at most the broker's limit (15 min)."""
    transaction_protocol: TransactionProtocol = "auto"
    """``auto``: version 2 (KIP-890) while the cluster has finalised it. ``2`` fails on a cluster that has not."""
    enable_idempotence: bool = True
    """Retries write no duplicates. Needs ``acks="all"`` and ``max_in_flight`` of at most 5."""
    acks: Acks | Literal["-1", -1, 0, 1] = "all"
    """Acknowledgements required: of all in-sync replicas (``all``), of the leader (``1``), or none (``0``)."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Codec of the batches."""
    linger_ms: float = 5
    """Time that a batch that is not full waits for more records."""
    batch_bytes: int = 64 * 1024
    """Size of a full batch in bytes, before compression."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Bytes of records without acknowledgement, above which ``send`` waits and ``send_nowait`` refuses."""
    max_request_bytes: int = 1024 * 1024
    """Maximum size in bytes of the records of one request, and so of one record."""
    max_block_ms: int = 60_000
    """Maximum time that ``send`` waits for metadata and space, and each transactional call for its end."""
    delivery_timeout_ms: int = 120_000
    """Maximum time from ``send`` to the acknowledgement; at least ``linger_ms`` and ``request_timeout_ms`` together."""
    request_timeout_ms: int = 30_000
    """Maximum time that a broker may take for one request."""
    connect_timeout_ms: int = 10_000
    """Maximum time of one attempt to connect to a broker."""
    retry_backoff_ms: int = 100
    """Time before the first retry of a batch; it doubles with each further one."""
    retry_backoff_max_ms: int = 1_000
    """Maximum time before a retry."""
    max_in_flight: int = MOST_IN_FLIGHT
    """Maximum number of produce requests to one broker without a response."""
    metadata_max_age_ms: int = 300_000
    """Time after which the metadata of the topics in use is requested anew."""
    partitioner: Partitioner | None = None
    """Replaces murmur2 of the key, and the sticky random partition of records without key."""

    def __post_init__(self) -> None:
        parse_bootstrap(self.bootstrap)
        require_security(self)
        for name in _POSITIVE:
            checked_size(getattr(self, name), name)
        for name in _TIMES:
            checked_milliseconds(getattr(self, name), name)
        for name in _IN_REQUESTS:
            checked_timeout(getattr(self, name), name)
        for name in ("client_id", "transactional_id"):
            if (text := getattr(self, name)) is not None:
                checked_text(text, name)
        checked_milliseconds(self.linger_ms, "linger_ms", least=0)
        object.__setattr__(self, "acks", _SPELT.get(self.acks, self.acks))
        _require(self.acks in ACKS, "acks", f"must be all, 1 or 0, not {self.acks!r}")
        _require(self.compression.lower() in _CODECS, "compression", f"must be {_ANY_CODEC}, not {self.compression!r}")
        _require(self.transaction_protocol in ("auto", "1", "2"), "transaction_protocol", "must be auto, 1 or 2")
        _require(self.batch_bytes >= _LEAST_BATCH_BYTES, "batch_bytes", f"must be at least {_LEAST_BATCH_BYTES}")
        _require(self.buffer_bytes >= self.max_request_bytes, "buffer_bytes", "must hold at least one request")
        _require(
            self.delivery_timeout_ms >= self.linger_ms + self.request_timeout_ms,
            "delivery_timeout_ms",
            "must be at least linger_ms + request_timeout_ms",
        )
        self._check_idempotence()

    def _check_idempotence(self) -> None:
        if self.transactional_id is not None:
            _require(self.transactional_id != "", "transactional_id", "must not be empty")
            _require(self.enable_idempotence, "enable_idempotence", "cannot be off for a transactional producer")
        if self.enable_idempotence:
            _require(self.acks == "all", "acks", f"is {self.acks}: it must be all unless enable_idempotence=False")
            _require(self.max_in_flight <= MOST_IN_FLIGHT, "max_in_flight", "must be at most 5 with idempotence")

    @property
    def codec(self) -> Compression:
        """The codec of batches."""
        return Compression[self.compression.upper()]


def _require(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{name} {what}")
