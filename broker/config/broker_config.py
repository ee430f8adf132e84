"""The broker's settings: one table, Kafka's keys and defaults, from which everything about configuration comes.

``BrokerConfig`` is the table and, instantiated, a broker's configuration: ``config.log_segment_bytes`` is
``log.segment.bytes``. ``given`` remembers what the operator wrote, to distinguish a setting from its default.

Two kinds of rows deserve a word. Those with ``embedded=`` have another default while the broker is alone on the
embedded metadata store, where replication factors of 3 and a rebalance delay of 3 s only hurt; the start prints them.
Those with ``unused=`` are known and do nothing; the start says so once, with the reason. Keys of Kafka that would be
dangerous to ignore, such as an authorizer, are refused instead (``oncelog.broker.config.sources``).

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

_ASYNCIO: Final = "one event loop does this work; there are no threads to count"
_NO_KRAFT: Final = "the cluster is coordinated by ZooKeeper or by the embedded store, not by KRaft"
_FORMAT: Final = "there is one message format, version 2"
AS_PRODUCED: Final = "the codec's own default level is used"
GZIP_LEVEL: Final = "Level of gzip, 1 to 9; -1: its default."
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SLICES: Final = "what is read at once is small and fixed"


NO_CLEANUP_POLICY: Final = "log.cleanup.policy= is not valid: expected compact, delete or both"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class BrokerConfig:
    """All settings of one broker."""

    # Identity and metadata
    broker_id: int = integer(-1, "This broker's id. -1: the id that its data directory has, or a new one.", low=-1)
    node_id: int | None = integer(None, "Another name of broker.id.", low=0)
    broker_rack: str | None = string(None, "The rack that this broker stands in.")
    reserved_broker_max_id: int = integer(1000, "The largest broker.id that is not generated.", low=0)
    broker_id_generation_enable: bool = boolean(True, "Whether a broker without an id may get a generated one.")
    zookeeper_connect: str = string("", "ZooKeeper's host:port,…/chroot. Empty: the embedded store, one broker.")
    zookeeper_session_timeout_ms: int = integer(
        18_000, "How long ZooKeeper waits for a silent broker. It grants two to twenty of its ticks.", low=1
    )
    zookeeper_connection_timeout_ms: int | None = integer(
        None, "How long to wait for the first connection; the session time-out if not set.", low=1
    )
    zookeeper_set_acl: bool = boolean(False, "Protect znodes by ACLs. True is refused: it is not served yet.")
    process_roles: tuple[str, ...] = strings((), "KRaft's roles.", unused=_NO_KRAFT)
    controller_quorum_voters: tuple[str, ...] = strings((), "KRaft's voters.", unused=_NO_KRAFT)
    controller_quorum_bootstrap_servers: tuple[str, ...] = strings((), "KRaft's voters.", unused=_NO_KRAFT)
    controller_listener_names: tuple[str, ...] = strings((), "Listeners of KRaft controllers: they are not opened.")
    cluster_id: str | None = string(None, "The cluster's id when the embedded store is created; random if not set.")

    # Listeners and connections
    listeners: str = string(
        "PLAINTEXT://localhost:9092", "Where to listen: NAME://host:port,… An empty host: anywhere."
    )
    advertised_listeners: str | None = string(None, "The addresses that clients connect to; listeners if not set.")
    listener_security_protocol_map: str = string(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", "NAME:PROTOCOL,… of listeners."
    )
    inter_broker_listener_name: str | None = string(None, "The listener between brokers.")
    security_inter_broker_protocol: str = string("PLAINTEXT", "The protocol between brokers, if no listener is named.")
    socket_request_max_bytes: int = integer(
        104_857_600, "The largest request; a larger one ends its connection.", low=1
    )
    socket_listen_backlog_size: int = integer(50, "Connections that wait to be accepted.", low=1)
    socket_send_buffer_bytes: int = integer(
        -1, "SO_SNDBUF of clients' connections, in bytes; -1: the kernel sizes it.", low=-1
    )
    socket_receive_buffer_bytes: int = integer(
        -1, "SO_RCVBUF of clients' connections, in bytes; -1: the kernel sizes it.", low=-1
    )
    connections_max_idle_ms: int = long(600_000, "Connections without a request for this time are closed; -1: never.")
    max_connections: int = integer(
        INT32_MAX, "The most connections; one more is closed, or takes the place of an unused one.", low=0
    )
    max_connections_per_ip: int = integer(INT32_MAX, "The most connections from one address.", low=0)
    max_connections_per_ip_overrides: str = string("", "address:count,… instead of max.connections.per.ip.")
    queued_max_requests: int = integer(500, "Requests that wait for a thread.", low=1, unused=_ASYNCIO)
    num_network_threads: int = integer(3, "Network threads.", low=1, unused=_ASYNCIO)
    num_io_threads: int = integer(8, "Request threads.", low=1, unused=_ASYNCIO)
    background_threads: int = integer(10, "Background threads.", low=1, unused=_ASYNCIO)
    oncelog_connection_max_inflight_requests: int = integer(
        1000, "Requests of one connection that are begun or wait; more are not read.", low=1
    )
    oncelog_connection_max_inflight_bytes: int = long(
        64 << 20,
        "Bytes of the requests of one connection that are begun or wait; more are not read, except for one request.",
        low=1,
    )
    oncelog_request_max_elements: int = integer(
        10_000, "Array elements and tagged fields of one request; some APIs may have a multiple.", low=1_000
    )
    oncelog_responses_max_bytes: int = long(
        256 << 20,
        "Bytes held for clients that do not read, all together; then the slowest of them are disconnected.",
        low=1,
    )
    oncelog_http_listener: str | None = string(
        None, "host:port of the pages /metrics and /ready; not opened if not set."
    )

    # Topics
    auto_create_topics_enable: bool = boolean(True, "Whether a Metadata request for an unknown topic creates it.")
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    num_partitions: int = integer(1, "Partitions of a topic whose creation does not set them.", low=1)
    default_replication_factor: int = integer(1, "Replicas of a topic whose creation does not set them.", low=1)
    min_insync_replicas: int = integer(1, "In-sync replicas that acks=all demands.", low=1)
    unclean_leader_election_enable: bool = boolean(False, "Whether a replica out of sync may lead: loses records.")
    auto_leader_rebalance_enable: bool = boolean(True, "Whether leadership returns to preferred replicas.")
    leader_imbalance_check_interval_seconds: int = long(
        300, "Seconds between two looks at the imbalance of leadership.", low=1
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Percentage of a broker's preferred partitions that others may lead before leadership returns.", low=0
    )

    # Logs
    log_dir: str = string("oncelog-data", "The data directory, if log.dirs is not set.")
    log_dirs: str | None = string(None, "The data directory. One: several are not served yet.")
    log_segment_bytes: int = integer(
        1 << 30, "Maximum size of a log segment, in bytes. A new value of a running broker is at least 1048576.", low=14
    )
    log_roll_ms: int | None = long(
        None, "Maximum age of a log segment, in milliseconds; log.roll.hours if not set.", low=1
    )
    log_roll_hours: int = integer(168, "Maximum age of a log segment, in hours.", low=1)
    log_roll_jitter_ms: int | None = long(
        None,
        "Milliseconds by which a segment may be rolled earlier, at random; log.roll.jitter.hours if not set.",
        low=0,
    )
    log_roll_jitter_hours: int = integer(0, "Hours by which a segment may be rolled earlier, at random.", low=0)
    log_retention_ms: int | None = long(
        None, "Milliseconds to keep records, -1: for ever; log.retention.minutes if not set."
    )
    log_retention_minutes: int | None = integer(
        None, "Minutes to keep records, -1: for ever; log.retention.hours if not set."
    )
    log_retention_hours: int = integer(168, "Hours to keep records, -1: for ever.")
    log_retention_bytes: int = long(-1, "Bytes of a partition to keep; -1: all.")
    log_retention_check_interval_ms: int = long(
        300_000, "Milliseconds between two applications of the retention limits.", low=1
    )
    log_segment_delete_delay_ms: int = long(60_000, "How long a deleted file stays before it is removed.", low=0)
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",), "delete, compact or both.", choices=("compact", "delete")
    )
    log_cleaner_enable: bool = boolean(True, "Whether compacted topics are cleaned.")
    log_cleaner_backoff_ms: int = long(15_000, "How often the cleaner looks for work.", low=0)
    log_cleaner_min_cleanable_ratio: float = double(0.5, "How dirty a log must be to be cleaned.", low=0, high=1)
    log_cleaner_delete_retention_ms: int = long(86_400_000, "How long tombstones stay.", low=0)
    log_cleaner_min_compaction_lag_ms: int = long(0, "How long a record is safe from cleaning.", low=0)
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, "How long a record may wait for cleaning, whatever the dirty ratio is.", low=1
    )
    log_cleaner_threads: int = integer(1, "Cleaner threads.", low=0, unused=_ASYNCIO)
    log_cleaner_dedupe_buffer_size: int = long(134_217_728, "The cleaner's memory.", unused="it takes what it needs")
    log_cleaner_io_buffer_size: int = integer(524_288, "The cleaner's memory.", low=0, unused="it takes what it needs")
    log_flush_interval_messages: int = long(INT64_MAX, "fsync after as many records; 1: before every response.", low=1)
    log_flush_interval_ms: int | None = long(None, "fsync after this time; log.flush.scheduler.interval.ms if not set.")
    log_flush_scheduler_interval_ms: int = long(INT64_MAX, "How often logs are checked for fsync.")
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, "How often recovery points are written.", low=0)
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, "How often log starts are written.", low=0)
    log_index_interval_bytes: int = integer(4096, "Bytes of a log between two index entries.", low=0)
    log_index_size_max_bytes: int = integer(10 << 20, "The largest index.", low=4)
    log_preallocate: bool = boolean(False, "Make files long in advance.", unused="files are as long as their content")
    log_message_timestamp_type: str = string(
        "CreateTime", "Whose clock records carry.", choices=("CreateTime", "LogAppendTime")
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX, "Milliseconds that a producer's time stamp may be older than the broker's clock.", low=0
    )
    log_message_timestamp_after_max_ms: int = long(
        3_600_000, "Milliseconds that a producer's time stamp may be ahead of the broker's clock.", low=0
    )
    log_message_timestamp_difference_max_ms: int = long(
        INT64_MAX,
        "Difference between a producer's time stamp and the broker's clock, in older configurations.",
        low=0,
        unused="set the two keys that replaced it",
    )
    log_message_format_version: str | None = string(None, "The oldest readers.", unused=_FORMAT)
    log_message_downconversion_enable: bool = boolean(True, "Convert for old readers.", unused=_FORMAT)
    message_max_bytes: int = integer(1_048_588, "The largest batch.", low=0)
    compression_type: str = string(
        "producer", "How logs are compressed.", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    )
    compression_gzip_level: int = integer(-1, GZIP_LEVEL, low=-1, high=9, unused=AS_PRODUCED)
    compression_lz4_level: int = integer(9, "Level of lz4.", low=1, high=17, unused=AS_PRODUCED)
    compression_zstd_level: int = integer(3, "Level of zstd.", low=-131_072, high=22, unused=AS_PRODUCED)
    num_recovery_threads_per_data_dir: int = integer(1, "Threads of recovery.", low=1, unused=_ASYNCIO)
    oncelog_validate_records: str = string(
        "header", "header: check a batch's header and CRC. full: walk its records, as Kafka does.",
        choices=("header", "full"),
    )  # fmt: skip
    oncelog_max_decompressed_bytes: int = integer(
        256 << 20, "A batch that is read inside must not decompress to more.", low=1
    )
    oncelog_record_max_headers: int = integer(
        10_000, "Headers of a record, where a batch is read inside; with more it is refused.", low=0
    )

    # Replication
    replica_lag_time_max_ms: int = long(30_000, "A follower that is behind for this time leaves the ISR.", low=1)
    oncelog_replica_silence_max_ms: int = long(
        2_000, "A follower without a fetch for this time leaves the ISR if enough stay. 0: replica.lag.time.max.ms.",
        low=0,
    )  # fmt: skip
    oncelog_coordinator_silence_max_ms: int = long(
        1_500, "Milliseconds without a fetch of any in-sync follower after which a coordinator no longer responds "
        "about committed offsets and transactions. More than 2000 is not safe. 0: it always responds, as Kafka does.",
        low=0,
    )  # fmt: skip
    replica_fetch_max_bytes: int = integer(1 << 20, "What a follower fetches of one partition.", low=0)
    replica_fetch_response_max_bytes: int = integer(10 << 20, "What a follower fetches at once.", low=0)
    replica_fetch_min_bytes: int = integer(1, "What a follower waits for.")
    replica_fetch_wait_max_ms: int = integer(500, "How long a follower's fetch waits.")
    replica_fetch_backoff_ms: int = integer(1000, "How long a follower rests at most after errors.", low=0)
    replica_socket_timeout_ms: int = integer(30_000, "How long a follower waits for a response.", low=1)
    replica_high_watermark_checkpoint_interval_ms: int = long(5_000, "How often high watermarks are written.", low=1)
    num_replica_fetchers: int = integer(1, "Connections to each other broker.", low=1, unused=_ASYNCIO)
    replica_selector_class: str | None = string(
        None, "Where consumers read: at the leader, or at a replica in their rack.",
        choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )  # fmt: skip
    leader_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that a leader sends to throttled replicas; replicas in sync are not throttled.",
        low=0,
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that a follower fetches for throttled replicas; replicas in sync are not throttled.",
        low=0,
    )
    replication_quota_window_num: int = integer(
        11, "Number of windows over which the rates of throttled replication are averaged.", low=1
    )
    replication_quota_window_size_seconds: int = integer(
        1, "Seconds of one window over which the rates of throttled replication are averaged.", low=1
    )
    controlled_shutdown_enable: bool = boolean(True, "Whether leadership moves away before a broker stops.")
    controlled_shutdown_max_retries: int = integer(3, "Times that a stopping broker requests its controlled shutdown.")
    controlled_shutdown_retry_backoff_ms: int = long(
        5_000, "Milliseconds between two requests for a controlled shutdown."
    )
    controller_socket_timeout_ms: int = integer(
        30_000, "How long a broker waits for the response of another on the channel between them.", low=1
    )
    request_timeout_ms: int = integer(30_000, "How long a broker waits for another.", low=1)

    # Fetching
    fetch_max_bytes: int = integer(57_671_680, "The largest response to a fetch.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Fetch sessions that are kept.", low=0)
    max_request_partition_size_limit: int = integer(2000, "Partitions in one DescribeTopicPartitions response.", low=1)

    # Groups
    group_min_session_timeout_ms: int = integer(6_000, "The shortest session timeout that a member may request.", low=0)
    group_max_session_timeout_ms: int = integer(
        1_800_000, "The longest session timeout that a member may request.", low=0
    )
    group_initial_rebalance_delay_ms: int = integer(
        3_000, "How long a new group waits for more members.", low=0, embedded=0
    )
    group_max_size: int = integer(INT32_MAX, "The most members of a group.", low=1)
    oncelog_group_member_max_bytes: int = integer(
        1 << 20, "Memory that one group member may take: the metadata of all protocols that it offers, and 2 KiB.",
        low=4_096,
    )  # fmt: skip
    oncelog_group_max_bytes: int = integer(
        16 << 20, "Memory that the members of one group may take, their assignments included.", low=4_096
    )
    oncelog_groups_max_bytes: int = long(
        128 << 20,
        "Memory that the members of all groups of this broker may take; a quarter of it is for members up to 16 KiB.",
        low=4_096,
    )
    oncelog_group_id_max_length: int = integer(
        1_024, "Characters of the id of a new group; a longer one is refused with INVALID_GROUP_ID.", low=1
    )
    oncelog_offsets_max_count: int = integer(
        1_000_000,
        "Committed offsets that this broker keeps, each group counted as six more; new ones are refused.",
        low=1,
    )
    oncelog_offsets_metadata_max_bytes: int = long(
        128 << 20, "Memory that the metadata of all committed offsets of this broker may take.", low=1
    )
    offset_metadata_max_bytes: int = integer(4096, "The longest metadata of a committed offset.")
    offsets_topic_num_partitions: int = integer(50, "Partitions of __consumer_offsets; never change it.", low=1)
    offsets_topic_segment_bytes: int = integer(104_857_600, "Segments of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = short(3, "Replicas of __consumer_offsets.", low=1, embedded=1)
    offsets_topic_compression_codec: int = integer(
        0, "Compression of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", low=0, high=4
    )
    offsets_load_buffer_size: int = integer(
        5_242_880, "How much of __consumer_offsets is read at once.", low=1, unused=_SLICES
    )
    offsets_retention_minutes: int = integer(10_080, "How long the offsets of an empty group stay.", low=1)
    offsets_retention_check_interval_ms: int = long(
        600_000, "Milliseconds between two searches for expired offsets.", low=1
    )
    offsets_commit_timeout_ms: int = integer(5_000, "How long a commit may take to replicate.", low=1)

    # Transactions
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of __transaction_state; never change it.", low=1
    )
    transaction_state_log_segment_bytes: int = integer(104_857_600, "Segments of __transaction_state.", low=1)
    transaction_state_log_replication_factor: int = short(3, "Replicas of __transaction_state.", low=1, embedded=1)
    transaction_state_log_min_isr: int = integer(
        2, "In-sync replicas that __transaction_state demands.", low=1, embedded=1
    )
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880, "How much of __transaction_state is read at once.", low=1, unused=_SLICES
    )
    transaction_max_timeout_ms: int = integer(900_000, "The longest transaction timeout of a producer.", low=1)
    transactional_id_expiration_ms: int = integer(604_800_000, "When an unused transactional id is forgotten.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often transactions that lasted too long are looked for.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often unused transactional ids are looked for.", low=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether the first batch of a transaction is checked with its coordinator."
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20, "How long until a request to another broker's coordinator to add a partition is retried.", low=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100, "How long the first batch of a transaction waits for the transaction before it to complete.", low=0
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False, "Whether producers may request transactions without a time-out.", unused="they may not yet"
    )
    producer_id_expiration_ms: int = integer(86_400_000, "When an unused producer id is forgotten.", low=1)
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, "Milliseconds between two searches for unused producer ids.", low=1
    )
    oncelog_transaction_version: int = integer(
        2, "The level of transaction.version that a new cluster begins with (KIP-890).", low=0, high=2
    )
    oncelog_transactional_id_max_length: int = integer(
        1_024, "Characters of a new transactional id; a longer one is refused with INVALID_REQUEST.", low=1
    )
    oncelog_transactional_ids_max_count: int = integer(
        300_000, "Transactional ids that this broker keeps; new ones are refused with POLICY_VIOLATION.", low=1
    )
    oncelog_end_txn_response_ms: int = integer(
        5, "Milliseconds that the response to EndTxn waits for the markers; they are written in any case.", low=0
    )

    given: Mapping[str, str] = field(default_factory=dict)
    """What the operator set, by key, as it was written."""

    @property
    def is_embedded(self) -> bool:
        """Whether the broker is alone, on the embedded metadata store."""
        return not self.zookeeper_connect

    @property
    def data_dir(self) -> str:
        return self.log_dirs or self.log_dir

    def with_embedded_defaults(self) -> "BrokerConfig":
        """Return the configuration with the defaults of a broker that is alone wherever nothing was given."""
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
