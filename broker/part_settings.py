"""The settings of each part of a broker, taken from the broker's configuration."""

from collections.abc import Mapping

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners
from oncelog.broker.storage.log_manager import LogManagerConfig
from oncelog.broker.transactions.verification import VerificationSettings
from oncelog.coordinator.controller.controller_settings import ControllerSettings
from oncelog.coordinator.controller.finalized_features import ELIGIBLE_LEADER_REPLICAS_VERSION, TRANSACTION_VERSION
from oncelog.coordinator.controller.recovery_strategy import STRATEGY_KEY, RecoverySettings, RecoveryStrategy
from oncelog.coordinator.controller.topic_plan import TopicDefaults
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, RegisteredEndpoint, SecurityProtocol
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.protocol.records.compression import Compression

_MINUTE_MS = 60_000


def log_manager_config(config: BrokerConfig) -> LogManagerConfig:
    return LogManagerConfig(
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        recovery_point_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        cleaner_enable=config.log_cleaner_enable,
        cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
    )


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        member_max_bytes=config.oncelog_group_member_max_bytes,
        group_max_bytes=config.oncelog_group_max_bytes,
        groups_max_bytes=config.oncelog_groups_max_bytes,
        group_id_max_length=config.oncelog_group_id_max_length,
        offsets_max_count=config.oncelog_offsets_max_count,
        offsets_metadata_max_bytes=config.oncelog_offsets_metadata_max_bytes,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_topic_compression_codec=Compression(config.offsets_topic_compression_codec),
    )


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        max_ids=config.oncelog_transactional_ids_max_count,
        max_id_length=config.oncelog_transactional_id_max_length,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        completion_wait_ms=config.oncelog_end_txn_response_ms,
        challenges_connections=config.oncelog_transaction_connection_challenge_enable,
        busy_wait_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
    )


def verification_settings(config: BrokerConfig) -> VerificationSettings:
    return VerificationSettings(
        enabled=config.transaction_partition_verification_enable,
        retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
        challenges_connections=config.oncelog_transaction_connection_challenge_enable,
    )


def controller_settings(
    config: BrokerConfig, broker_id: int, listeners: Listeners, features: Mapping[str, tuple[int, int]]
) -> ControllerSettings:
    return ControllerSettings(
        registration=BrokerRegistration(
            broker_id=broker_id,
            endpoints=tuple(
                RegisteredEndpoint(
                    listener=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=SecurityProtocol[listener.security_protocol],
                )
                for listener in listeners.advertised.values()
            ),
            rack=config.broker_rack,
            features=features,
            min_insync_replicas=config.min_insync_replicas,
        ),
        listener_name=listeners.inter_broker,
        defaults=TopicDefaults(
            partition_count=config.num_partitions, replication_factor=config.default_replication_factor
        ),
        features={
            TRANSACTION_VERSION: config.oncelog_transaction_version,
            ELIGIBLE_LEADER_REPLICAS_VERSION: config.oncelog_eligible_leader_replicas_version,
        },
        balance_seconds=config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None,
        tolerated_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
    )


def recovery_settings(config: BrokerConfig) -> RecoverySettings:
    """Return what finds a leader for partitions without an eligible one. The strategy counts if it was set."""
    is_given = STRATEGY_KEY in config.given
    return RecoverySettings(
        strategy=RecoveryStrategy(config.unclean_recovery_strategy) if is_given else None,
        unclean_election=config.unclean_leader_election_enable,
    )
