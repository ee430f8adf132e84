"""The settings of a consumer. Defaults are Kafka's, except where a line says otherwise."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from oncelog.clients.arguments import MAX_INT32, checked_size, checked_text, checked_timeout
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.consumer.assigned_partitions import NO_RESET, RESET_TO_EARLIEST, RESET_TO_LATEST, ResetPolicy
from oncelog.clients.consumer.assignors import ASSIGNORS
from oncelog.clients.durations import checked_milliseconds
from oncelog.clients.security_config import SecurityConfig, require_security

_MEBIBYTE: Final = 1024 * 1024
_IN_REQUESTS: Final = ("session_timeout_ms", "max_poll_interval_ms")
"""Settings that requests contain as 32-bit integers."""
_POSITIVE: Final = (
    "auto_commit_interval_ms",
    "heartbeat_interval_ms",
    "metadata_max_age_ms",
    "connect_timeout_ms",
    "request_timeout_ms",
    "default_api_timeout_ms",
)
_SIZES: Final = ("max_buffered_bytes", "max_batch_bytes", "max_poll_records")
_SIZES_IN_REQUESTS: Final = {"fetch_min_bytes": 0, "fetch_max_bytes": 0, "max_partition_fetch_bytes": 1}
"""The least value of each; at most 31 bits."""
_TEXTS: Final = ("client_id", "group_id", "group_instance_id", "client_rack")
KAFKA_NAMES: Final[Mapping[str, str | None]] = {
    "sasl_username": None,
    "sasl_password": None,
    "sasl_oauthbearer_extensions": None,
    "sasl_oauthbearer_token_provider": None,
    "bootstrap": "bootstrap.servers",
    "assignors": "partition.assignment.strategy",
    "max_buffered_bytes": None,
    "max_batch_bytes": None,
    "connect_timeout_ms": "socket.connection.setup.timeout.ms",
}
"""Kafka's names of the settings that are called otherwise here; None where Kafka has no such setting."""


@checked_fields(KAFKA_NAMES)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(SecurityConfig):
    """The settings of a consumer. Wrong ones are a ``ValueError`` or ``TypeError`` that names the setting.

    Times end in ``_ms`` (milliseconds), sizes in ``_bytes``.
    """

    bootstrap: str
    """Brokers to connect to first: ``host:port,host:port``."""
    client_id: str = "oncelog"
    """The name that brokers log, and meter for quotas."""
    group_id: str | None = None
    """The group to share partitions and keep offsets with. Without one there is no ``subscribe`` and no ``commit``."""
    group_instance_id: str | None = None
    """A name that outlives this process (KIP-345). Its partitions wait for it to come back for ``session_timeout_ms``:
    closing the consumer does not leave the group."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether to leave out what belongs to open and aborted transactions. (Kafka's default is read_uncommitted.)"""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset, and to go on where the position is not in the log: "earliest",
    "latest", "by_duration:P7D" (the records of the last seven days, KIP-1106); "none" raises."""
    enable_auto_commit: bool = False
    """Whether ``poll`` commits what earlier polls returned, every ``auto_commit_interval_ms``. (Kafka's: true.)"""
    auto_commit_interval_ms: int = 5000
    """Time between automatic commits."""
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    """Strategies in order of preference: cooperative-sticky, sticky, range, roundrobin. All members of a group must
    have one in common. (Kafka's default is range, then cooperative-sticky.)"""
    session_timeout_ms: int = 45_000
    """How long the group waits for a heartbeat."""
    heartbeat_interval_ms: int = 3000
    """At most a third of ``max_poll_interval_ms`` is used: a heartbeat's response tells a member of a rebalance."""
    max_poll_interval_ms: int = 300_000
    """How long the application may stay away from ``poll`` before its partitions go to others; also how long a
    rebalance waits for a member."""
    fetch_min_bytes: int = 1
    """Size of the records for which a broker waits before it responds to a fetch, in bytes."""
    fetch_max_wait_ms: int = 500
    """How long a broker waits for ``fetch_min_bytes``."""
    fetch_max_bytes: int = 50 * _MEBIBYTE
    """Maximum size of one fetch response, in bytes; a first batch that is larger comes nevertheless."""
    max_partition_fetch_bytes: int = _MEBIBYTE
    """Maximum size of one partition in one response, in bytes; a first batch that is larger comes nevertheless. With
    many partitions less is requested, but at least 64 KiB, so that all have their share of a response."""
    max_buffered_bytes: int = 16 * _MEBIBYTE
    """Maximum size of fetched records that have not been polled, of all brokers together, in bytes. Two responses of
    each broker share it evenly: one that is being polled, and one behind it. Records of paused partitions are not
    counted, at most two responses of each. (Kafka has no such setting: there a broker gets the next fetch when
    everything of the last one has been polled.)"""
    max_batch_bytes: int = 256 * _MEBIBYTE
    """What the records of one compressed batch may become. (Kafka has no bound.)"""
    max_poll_records: int = 500
    """Maximum number of records that one ``poll`` returns."""
    check_crcs: bool = True
    """Whether to verify the checksum of each batch."""
    client_rack: str | None = None
    """Where this consumer is: brokers may send it to a replica there (KIP-392)."""
    allow_auto_create_topics: bool = True
    """Whether subscribing to a topic may create it, where brokers do that."""
    metadata_max_age_ms: int = 300_000
    """How often topics are looked for that a pattern matches, and for new partitions."""
    connect_timeout_ms: int = 10_000
    """Maximum time of one attempt to connect to a broker."""
    request_timeout_ms: int = 30_000
    """Maximum time of one request, and of one operation on the cluster in the background, with its retries."""
    default_api_timeout_ms: int = 60_000
    """How long calls try that take no time-out of their own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "assignors", tuple(self.assignors))
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise ValueError(f"assignors: {', '.join(unknown) or 'none'}; there are {', '.join(sorted(ASSIGNORS))}")
        parse_bootstrap(self.bootstrap)
        require_security(self)
        parse_reset_policy(self.auto_offset_reset)
        for name in _IN_REQUESTS:
            checked_timeout(getattr(self, name), name)
        for name in _SIZES:
            checked_size(getattr(self, name), name)
        for name, least in _SIZES_IN_REQUESTS.items():
            checked_size(getattr(self, name), name, least=least, most=MAX_INT32)
        for name in _TEXTS:
            if (text := getattr(self, name)) is not None:
                checked_text(text, name)
        for name in _POSITIVE:
            checked_milliseconds(getattr(self, name), name)
        checked_milliseconds(self.fetch_max_wait_ms, "fetch_max_wait_ms", least=0)
        if self.isolation_level not in ("read_committed", "read_uncommitted"):
            raise ValueError(f"isolation_level: {self.isolation_level}; there are read_committed, read_uncommitted")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        if self.group_id is None and (self.group_instance_id is not None or self.enable_auto_commit):
            raise ValueError("group_instance_id and enable_auto_commit need a group_id")
        if self.group_id == "":
            raise ValueError("group_id must not be empty")

    @property
    def reset_policy(self) -> ResetPolicy:
        """Where reading begins without a committed offset, from ``auto_offset_reset``."""
        return parse_reset_policy(self.auto_offset_reset)

    @property
    def reads_committed(self) -> bool:
        """Whether records of aborted and open transactions are left out, from ``isolation_level``."""
        return self.isolation_level == "read_committed"

    @property
    def effective_heartbeat_interval_ms(self) -> float:
        """How often to send a heartbeat, so that two may be lost before a rebalance ends without this member."""
        return min(self.heartbeat_interval_ms, self.max_poll_interval_ms / 3)

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept during a rebalance: only if every assignor knows how to (KIP-429)."""
        return all(ASSIGNORS[name].is_cooperative for name in self.assignors)


_POLICIES: Final = {"earliest": RESET_TO_EARLIEST, "latest": RESET_TO_LATEST, "none": NO_RESET}
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1000)


def parse_reset_policy(text: str) -> ResetPolicy:
    """Return the policy that ``auto_offset_reset`` names. Raises ``ValueError``."""
    if text in _POLICIES:
        return _POLICIES[text]
    duration = _DURATION.fullmatch(text.removeprefix("by_duration:")) if text.startswith("by_duration:") else None
    if duration is None or not any(duration.groups()):
        raise ValueError(f"auto_offset_reset: {text}; there are earliest, latest, by_duration:P1DT2H3M4S, none")
    numbers = (int(number or 0) for number in duration.groups())
    return ResetPolicy(sum(number * unit for number, unit in zip(numbers, _UNITS_MS, strict=True)), is_age=True)
