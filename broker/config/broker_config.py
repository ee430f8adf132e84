"""The broker's settings: one table, Kafka's keys and defaults, from which everything about configuration comes.

``BrokerConfig`` is the table and, instantiated, a broker's configuration: ``config.log_segment_bytes`` is
``log.segment.bytes``. ``given`` remembers what the operator wrote, to distinguish a setting from its default.

Two kinds of rows are special. Those with ``embedded=`` have another default for a standalone broker, on the embedded
metadata store, where replication factors of 3 cannot be met and a rebalance delay of 3 s only delays; the start logs
them. Those with ``unused=`` are accepted without effect; the start logs each once, with the reason. Keys of Kafka that
would be dangerous to ignore are refused instead (``oncelog.broker.config.sources``).

Keys that begin with ``oncelog.`` are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from oncelog.broker.config.settings import (
    INT32_MAX,
    INT64_MAX,
    Setting,
    boolean,
    double,
    integer,
    long,
    settings_of,
    short,
    string,
    strings,
)  # fmt: skip
from oncelog.broker.config.unclean_recovery import STRATEGIES, STRATEGY
from oncelog.broker.config.zookeeper_settings import ZooKeeperSettings

_ASYNCIO: Final = "one event loop does this work, without a pool of threads"
_NO_KRAFT: Final = "the cluster is coordinated by ZooKeeper or by the embedded store, not by KRaft"
_FORMAT: Final = "messages are stored in format version 2 only"
AS_PRODUCED: Final = "the codec's own default level is used"
GZIP_LEVEL: Final = "Level of gzip, 1 to 9; -1: its default."
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SLICES: Final = "the read size is fixed"
MIN_ISR: Final = "Minimum number of in-sync replicas for acks=all; above the replication factor it acts as that."
NO_CLEANUP_POLICY: Final = "log.cleanup.policy= is not valid: expected compact, delete or both"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class BrokerConfig(ZooKeeperSettings):
    """All settings of one broker."""

    # Identity and metadata
    broker_id: int = integer(
        -1, "The broker id. -1: the id in meta.properties of the data directory, or a generated one.", low=-1
    )
    node_id: int | None = integer(None, "Synonym of broker.id.", low=0)
    broker_rack: str | None = string(None, "Rack of the broker, for rack-aware replica assignment and fetching.")
    reserved_broker_max_id: int = integer(1000, "Maximum configured broker.id; generated ids are larger.", low=0)
    broker_id_generation_enable: bool = boolean(True, "Whether to generate an id for a broker without broker.id.")
    process_roles: tuple[str, ...] = strings((), "KRaft's roles.", unused=_NO_KRAFT)
    controller_quorum_voters: tuple[str, ...] = strings((), "KRaft's voters.", unused=_NO_KRAFT)
    controller_quorum_bootstrap_servers: tuple[str, ...] = strings((), "KRaft's voters.", unused=_NO_KRAFT)
    controller_listener_names: tuple[str, ...] = strings((), "Listeners of KRaft controllers; they are not opened.")
    cluster_id: str | None = string(None, "Cluster id of a new embedded metadata store; random if not set.")

    # Listeners and connections
    listeners: str = string(
        "PLAINTEXT://localhost:9092", "Addresses to listen on: NAME://host:port,… An empty host: all interfaces."
    )
    advertised_listeners: str | None = string(None, "Addresses advertised to clients; listeners if not set.")
    listener_security_protocol_map: str = string(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Security protocol of each listener: NAME:PROTOCOL,NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = string(None, "Name of the listener for requests between brokers.")
    socket_request_max_bytes: int = integer(
        104_857_600, "Maximum size of a request, in bytes; a larger one closes its connection.", low=1
    )
    socket_listen_backlog_size: int = integer(50, "Maximum number of connections that wait to be accepted.", low=1)
    socket_send_buffer_bytes: int = integer(
        -1, "SO_SNDBUF of clients' connections, in bytes; -1: the kernel sizes it.", low=-1
    )
    socket_receive_buffer_bytes: int = integer(
        -1, "SO_RCVBUF of clients' connections, in bytes; -1: the kernel sizes it.", low=-1
    )
    connections_max_idle_ms: int = long(
        600_000, "Milliseconds without a request after which a connection is closed; -1: never."
    )
    max_connections: int = integer(
        INT32_MAX,
        "Maximum number of connections; a further one is closed, or replaces one that has sent no request.",
        low=0,
    )
    max_connections_per_ip: int = integer(INT32_MAX, "Maximum number of connections from one IP address.", low=0)
    max_connections_per_ip_overrides: str = string(
        "", "Overrides of max.connections.per.ip: address:count,address:count."
    )
    queued_max_requests: int = integer(500, "Maximum length of the request queue.", low=1, unused=_ASYNCIO)
    num_network_threads: int = integer(3, "Network threads.", low=1, unused=_ASYNCIO)
    num_io_threads: int = integer(8, "Request threads.", low=1, unused=_ASYNCIO)
    background_threads: int = integer(10, "Background threads.", low=1, unused=_ASYNCIO)
    oncelog_connection_max_inflight_requests: int = integer(
        1000, "Maximum number of requests in progress or queued of one connection; at the limit it is not read.", low=1
    )
    oncelog_connection_max_inflight_bytes: int = long(
        64 << 20,
        "Maximum bytes of requests in progress or queued of one connection; a single request may be larger.",
        low=1,
    )
    oncelog_request_max_elements: int = integer(
        10_000,
        "Maximum number of array elements and tagged fields of one request; a multiple for some APIs.",
        low=1_000,
    )
    oncelog_responses_max_bytes: int = long(
        256 << 20,
        "Maximum bytes of responses that clients have not read; at the limit the slowest clients are disconnected.",
        low=1,
    )
    oncelog_http_listener: str | None = string(
        None, "host:port of the HTTP pages /metrics and /ready; not opened if not set."
    )

    # Topics
    auto_create_topics_enable: bool = boolean(True, "Whether a Metadata request for an unknown topic creates it.")
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    num_partitions: int = integer(1, "Default number of partitions of a new topic.", low=1)
    default_replication_factor: int = integer(1, "Default replication factor of a new topic.", low=1)
    min_insync_replicas: int = integer(1, MIN_ISR, low=1)
    unclean_leader_election_enable: bool = boolean(
        False, "Whether a replica outside the ISR can be elected leader; this loses records."
    )
    unclean_recovery_strategy: str = string("balanced", STRATEGY, choices=STRATEGIES)
    auto_leader_rebalance_enable: bool = boolean(True, "Whether leadership is moved back to preferred replicas.")
    leader_imbalance_check_interval_seconds: int = long(
        300, "Seconds between two checks of the leader imbalance.", low=1
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Percentage of a broker's preferred partitions led by others above which leadership moves back.", low=0
    )

    # Logs
    log_dir: str = string("oncelog-data", "Data directory, if log.dirs is not set.")
    log_dirs: str | None = string(None, "Data directory. More than one is not supported.")
    log_segment_bytes: int = integer(
        1 << 30, "Maximum size of a log segment, in bytes. A running broker accepts 1048576 and more.", low=14
    )
    log_roll_ms: int | None = long(
        None, "Maximum age of a log segment, in milliseconds; log.roll.hours if not set.", low=1
    )
    log_roll_hours: int = integer(168, "Maximum age of a log segment, in hours.", low=1)
    log_roll_jitter_ms: int | None = long(
        None, "Maximum random jitter subtracted from log.roll.ms; log.roll.jitter.hours if not set.", low=0
    )
    log_roll_jitter_hours: int = integer(0, "Maximum random jitter subtracted from log.roll.hours, in hours.", low=0)
    log_retention_ms: int | None = long(
        None, "Milliseconds to retain records; -1: no limit. log.retention.minutes if not set."
    )
    log_retention_minutes: int | None = integer(
        None, "Minutes to retain records; -1: no limit. log.retention.hours if not set."
    )
    log_retention_hours: int = integer(168, "Hours to retain records; -1: no limit.")
    log_retention_bytes: int = long(
        -1, "Size of a partition above which its oldest segments are deleted, in bytes; -1: no limit."
    )
    log_retention_check_interval_ms: int = long(300_000, "Milliseconds between two retention checks.", low=1)
    log_segment_delete_delay_ms: int = long(
        60_000, "Milliseconds between the deletion of a segment and the removal of its files.", low=0
    )
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",), "Retention policy of segments: delete, compact or both.", choices=("compact", "delete")
    )
    log_cleaner_enable: bool = boolean(True, "Whether the log cleaner compacts topics.")
    log_cleaner_backoff_ms: int = long(15_000, "Milliseconds between two runs of the log cleaner.", low=0)
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, "Minimum ratio of dirty bytes to all bytes of a log for it to be cleaned.", low=0, high=1
    )
    log_cleaner_delete_retention_ms: int = long(
        86_400_000, "Milliseconds to retain tombstones and markers after their first cleaning.", low=0
    )
    log_cleaner_min_compaction_lag_ms: int = long(0, "Minimum milliseconds that a record remains uncompacted.", low=0)
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX,
        "Maximum milliseconds that a record remains ineligible for compaction, whatever the dirty ratio.",
        low=1,
    )
    log_cleaner_threads: int = integer(1, "Cleaner threads.", low=0, unused=_ASYNCIO)
    log_cleaner_dedupe_buffer_size: int = long(
        134_217_728, "Memory of the log cleaner, in bytes.", unused="the log cleaner allocates what it needs"
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288, "Memory of the log cleaner, in bytes.", low=0, unused="the log cleaner allocates what it needs"
    )
    log_flush_interval_messages: int = long(
        INT64_MAX, "Number of records after which a log is flushed (fsync); 1: before every response.", low=1
    )
    log_flush_interval_ms: int | None = long(
        None, "Milliseconds after which a log is flushed (fsync); log.flush.scheduler.interval.ms if not set."
    )
    log_flush_scheduler_interval_ms: int = long(
        INT64_MAX, "Milliseconds between two checks whether a log must be flushed."
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "Milliseconds between two writes of the recovery point checkpoint.", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "Milliseconds between two writes of the log start offset checkpoint.", low=0
    )
    log_index_interval_bytes: int = integer(4096, "Bytes of a log between two entries of its offset index.", low=0)
    log_index_size_max_bytes: int = integer(10 << 20, "Maximum size of an index file, in bytes.", low=4)
    log_preallocate: bool = boolean(
        False, "Whether to preallocate segment files.", unused="segment files are not preallocated"
    )
    log_message_timestamp_type: str = string(
        "CreateTime",
        "Timestamp of records: CreateTime, set by the producer, or LogAppendTime, set by the broker.",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX, "Maximum milliseconds by which a record's timestamp may be before the broker's time.", low=0
    )
    log_message_timestamp_after_max_ms: int = long(
        3_600_000, "Maximum milliseconds by which a record's timestamp may be after the broker's time.", low=0
    )
    log_message_timestamp_difference_max_ms: int = long(
        INT64_MAX,
        "Maximum difference between a record's timestamp and the broker's time, in older configurations.",
        low=0,
        unused="replaced by the keys that end in timestamp.before.max.ms and timestamp.after.max.ms",
    )
    log_message_format_version: str | None = string(None, "Message format version.", unused=_FORMAT)
    log_message_downconversion_enable: bool = boolean(
        True, "Whether consumers older than Kafka 0.11 are served; if not, they get UNSUPPORTED_VERSION."
    )
    oncelog_downconversion_isolation_level: str = string(
        "read_committed",
        "What consumers older than Kafka 0.11 read: read_committed: neither open nor aborted transactions. "
        "read_uncommitted: both, as in Kafka.",
        choices=("read_committed", "read_uncommitted"),
    )
    message_max_bytes: int = integer(1_048_588, "Maximum size of a record batch, in bytes.", low=0)
    compression_type: str = string(
        "producer",
        "Compression of logs; producer: the codec of the producer.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = integer(-1, GZIP_LEVEL, low=-1, high=9, unused=AS_PRODUCED)
    compression_lz4_level: int = integer(9, "Level of lz4.", low=1, high=17, unused=AS_PRODUCED)
    compression_zstd_level: int = integer(3, "Level of zstd.", low=-131_072, high=22, unused=AS_PRODUCED)
    num_recovery_threads_per_data_dir: int = integer(1, "Number of threads for log recovery.", low=1, unused=_ASYNCIO)
    oncelog_validate_records: str = string(
        "header", "header: validate a batch's header and CRC. full: also validate its records, as Kafka does.",
        choices=("header", "full"),
    )  # fmt: skip
    oncelog_max_decompressed_bytes: int = integer(
        256 << 20, "Maximum size of a decompressed batch, where the broker reads records, in bytes.", low=1
    )
    oncelog_record_max_headers: int = integer(
        10_000,
        "Maximum number of headers of a record, where the broker reads records; a batch with more is refused.",
        low=0,
    )

    # Replication
    replica_lag_time_max_ms: int = long(
        30_000, "Milliseconds without catching up to the leader after which a follower leaves the ISR.", low=1
    )
    oncelog_replica_silence_max_ms: int = long(
        2_000, "Milliseconds without a fetch after which a follower leaves the ISR, if enough replicas remain in sync. "
        "0: replica.lag.time.max.ms.",
        low=0,
    )  # fmt: skip
    oncelog_coordinator_silence_max_ms: int = long(
        1_500, "Milliseconds without a fetch from any in-sync follower after which a coordinator serves no committed "
        "offsets and no transactions. More than 2000 is not safe. 0: no limit, as in Kafka.",
        low=0,
    )  # fmt: skip
    replica_fetch_max_bytes: int = integer(
        1 << 20, "Maximum bytes of one partition that a follower requests in a fetch.", low=0
    )
    replica_fetch_response_max_bytes: int = integer(
        10 << 20, "Maximum size of the response to a follower's fetch, in bytes.", low=0
    )
    replica_fetch_min_bytes: int = integer(1, "Minimum size of the response to a follower's fetch, in bytes.")
    replica_fetch_wait_max_ms: int = integer(
        500, "Maximum milliseconds that a follower's fetch waits at the leader for replica.fetch.min.bytes."
    )
    replica_fetch_backoff_ms: int = integer(
        1000, "Maximum backoff of a follower's fetches after errors, in milliseconds.", low=0
    )
    replica_socket_timeout_ms: int = integer(
        30_000, "Timeout of a follower's requests to the leader, in milliseconds.", low=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, "Milliseconds between two writes of the high watermark checkpoint.", low=1
    )
    num_replica_fetchers: int = integer(1, "Number of fetchers for each source broker.", low=1, unused=_ASYNCIO)
    replica_selector_class: str | None = string(
        None, "Replica that consumers fetch from: the leader, or a replica in their rack.",
        choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )  # fmt: skip
    leader_replication_throttled_rate: int = long(
        INT64_MAX, "Bytes per second that the leaders on the broker send to throttled replicas outside the ISR.", low=0
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX, "Bytes per second that the broker fetches for its throttled replicas outside the ISR.", low=0
    )
    replication_quota_window_num: int = integer(
        11, "Number of windows over which the rate of throttled replication is averaged.", low=1
    )
    replication_quota_window_size_seconds: int = integer(
        1, "Length of a window over which the rate of throttled replication is averaged, in seconds.", low=1
    )
    controlled_shutdown_enable: bool = boolean(True, "Whether the broker hands over its leaderships before it stops.")
    controlled_shutdown_max_retries: int = integer(3, "Maximum attempts of a controlled shutdown.")
    controlled_shutdown_retry_backoff_ms: int = long(
        5_000, "Milliseconds between two attempts of a controlled shutdown."
    )
    controller_socket_timeout_ms: int = integer(
        30_000, "Timeout of the controller's requests to brokers, in milliseconds.", low=1
    )
    request_timeout_ms: int = integer(30_000, "Timeout of requests to other brokers, in milliseconds.", low=1)

    # Fetching
    fetch_max_bytes: int = integer(57_671_680, "Maximum size of a fetch response, in bytes.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Maximum number of incremental fetch sessions.", low=0
    )
    max_request_partition_size_limit: int = integer(
        2000, "Maximum number of partitions in one DescribeTopicPartitions response.", low=1
    )

    # Groups
    group_min_session_timeout_ms: int = integer(
        6_000, "Minimum session timeout of a group member, in milliseconds.", low=0
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000, "Maximum session timeout of a group member, in milliseconds.", low=0
    )
    group_initial_rebalance_delay_ms: int = integer(
        3_000, "Milliseconds that an empty group waits for more members before its first rebalance.", low=0, embedded=0
    )
    group_max_size: int = integer(INT32_MAX, "Maximum number of members of a group.", low=1)
    oncelog_group_member_max_bytes: int = integer(
        1 << 20, "Maximum memory of a group member, in bytes: the metadata of all its protocols, and 2 KiB.",
        low=4_096,
    )  # fmt: skip
    oncelog_group_max_bytes: int = integer(
        16 << 20, "Maximum memory of the members of one group and their assignments, in bytes.", low=4_096
    )
    oncelog_groups_max_bytes: int = long(
        128 << 20,
        "Maximum memory of the members of all groups, in bytes; a quarter is reserved for members up to 16 KiB.",
        low=4_096,
    )
    oncelog_group_id_max_length: int = integer(
        1_024, "Maximum length of a new group id, in characters; a longer one is refused with INVALID_GROUP_ID.", low=1
    )
    oncelog_offsets_max_count: int = integer(
        1_000_000,
        "Maximum number of committed offsets plus 6 for each group; at the limit, new ones are refused.",
        low=1,
    )
    oncelog_offsets_metadata_max_bytes: int = long(
        128 << 20, "Maximum memory of the metadata of all committed offsets, in bytes.", low=1
    )
    offset_metadata_max_bytes: int = integer(
        4096, "Maximum length of the metadata of a committed offset, in characters."
    )
    offsets_topic_num_partitions: int = integer(
        50, "Number of partitions of __consumer_offsets; do not change it once the topic exists.", low=1
    )
    offsets_topic_segment_bytes: int = integer(104_857_600, "Segment size of __consumer_offsets, in bytes.", low=1)
    offsets_topic_replication_factor: int = short(3, "Replication factor of __consumer_offsets.", low=1, embedded=1)
    offsets_topic_compression_codec: int = integer(
        0, "Compression codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", low=0, high=4
    )
    offsets_load_buffer_size: int = integer(
        5_242_880, "Bytes of __consumer_offsets that are read at once.", low=1, unused=_SLICES
    )
    offsets_retention_minutes: int = integer(
        10_080, "Minutes to retain the committed offsets of an empty group.", low=1
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "Milliseconds between two checks for expired offsets.", low=1
    )
    offsets_commit_timeout_ms: int = integer(
        5_000, "Maximum milliseconds that an offset commit waits for its replication.", low=1
    )

    # Transactions
    transaction_state_log_num_partitions: int = integer(
        50, "Number of partitions of __transaction_state; do not change it once the topic exists.", low=1
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "Segment size of __transaction_state, in bytes.", low=1
    )
    transaction_state_log_replication_factor: int = short(
        3, "Replication factor of __transaction_state.", low=1, embedded=1
    )
    transaction_state_log_min_isr: int = integer(2, "min.insync.replicas of __transaction_state.", low=1, embedded=1)
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880, "Bytes of __transaction_state that are read at once.", low=1, unused=_SLICES
    )
    transaction_max_timeout_ms: int = integer(
        900_000, "Maximum transaction timeout that a producer may request, in milliseconds.", low=1
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000, "Milliseconds without use after which a transactional id expires.", low=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "Milliseconds between two checks for transactions that have timed out.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "Milliseconds between two checks for expired transactional ids.", low=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether partition leaders verify the first batch of a transaction with its coordinator."
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20, "Milliseconds before a partition leader retries AddPartitionsToTxn to a coordinator.", low=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100,
        "Maximum milliseconds that a transaction's first batch waits for the completion of the previous one.",
        low=0,
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False,
        "Whether producers may request transactions without a timeout.",
        unused="two-phase commit (KIP-939) is not supported yet",
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "Milliseconds without a write after which a producer id without an open transaction expires.", low=1
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, "Milliseconds between two checks for expired producer ids.", low=1
    )
    oncelog_transaction_version: int = integer(
        2, "Initial feature level of transaction.version of a new cluster (KIP-890).", low=0, high=2
    )
    oncelog_eligible_leader_replicas_version: int = integer(
        1,
        "Initial feature level of eligible.leader.replicas.version of a new cluster (KIP-966). "
        "1: replicas that left the ISR and have everything may be elected.",
        low=0,
        high=1,
    )
    oncelog_transactional_id_max_length: int = integer(
        1_024,
        "Maximum length of a new transactional id, in characters; a longer one is refused with INVALID_REQUEST.",
        low=1,
    )
    oncelog_transactional_ids_max_count: int = integer(
        300_000, "Maximum number of transactional ids; further ones are refused with POLICY_VIOLATION.", low=1
    )
    oncelog_transaction_connection_challenge_enable: bool = boolean(
        True,
        "Whether a version-1 request of a transaction that comes over a new connection must be repeated by its client.",
    )
    oncelog_end_txn_response_ms: int = integer(
        5, "Maximum milliseconds that the EndTxn response waits for the transaction markers to be written.", low=0
    )

    given: Mapping[str, str] = field(default_factory=dict)
    """What the operator set, by key, as it was written."""

    @property
    def is_embedded(self) -> bool:
        """Whether the broker is standalone, on the embedded metadata store."""
        return not self.zookeeper_connect

    @property
    def data_dir(self) -> str:
        return self.log_dirs or self.log_dir

    def with_embedded_defaults(self) -> "BrokerConfig":
        """Return the configuration with the defaults of a standalone broker for every key that was not given."""
        changes: dict[str, Any] = {
            attribute(key): setting.embedded
            for key, setting in BROKER_SETTINGS.items()
            if setting.embedded is not None and key not in self.given
        }
        return replace(self, **changes)


def attribute(key: str) -> str:
    """Return the attribute of ``BrokerConfig`` that holds a key's value."""
    return key.replace(".", "_")


BROKER_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(settings_of(BrokerConfig))
"""Every row of the table, by key."""
