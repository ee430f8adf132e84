"""One file per API, named like its file in ``oncelog.protocol.messages``; ``all_handlers`` lists them.

The other files are what several handlers share.
"""

from typing import Any

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from oncelog.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from oncelog.broker.handlers.alter_client_quotas import handle_alter_client_quotas
from oncelog.broker.handlers.alter_configs import handle_alter_configs
from oncelog.broker.handlers.alter_partition_reassignments import handle_alter_partition_reassignments
from oncelog.broker.handlers.alter_user_scram_credentials import handle_alter_user_scram_credentials
from oncelog.broker.handlers.api_versions import handle_api_versions
from oncelog.broker.handlers.create_acls import handle_create_acls
from oncelog.broker.handlers.create_delegation_token import handle_create_delegation_token
from oncelog.broker.handlers.create_partitions import handle_create_partitions
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.delete_acls import handle_delete_acls
from oncelog.broker.handlers.delete_groups import handle_delete_groups
from oncelog.broker.handlers.delete_records import handle_delete_records
from oncelog.broker.handlers.delete_topics import handle_delete_topics
from oncelog.broker.handlers.describe_acls import handle_describe_acls
from oncelog.broker.handlers.describe_client_quotas import handle_describe_client_quotas
from oncelog.broker.handlers.describe_cluster import handle_describe_cluster
from oncelog.broker.handlers.describe_configs import handle_describe_configs
from oncelog.broker.handlers.describe_delegation_token import handle_describe_delegation_token
from oncelog.broker.handlers.describe_groups import handle_describe_groups
from oncelog.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from oncelog.broker.handlers.describe_producers import handle_describe_producers
from oncelog.broker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from oncelog.broker.handlers.describe_transactions import handle_describe_transactions
from oncelog.broker.handlers.describe_user_scram_credentials import handle_describe_user_scram_credentials
from oncelog.broker.handlers.elect_leaders import handle_elect_leaders
from oncelog.broker.handlers.end_txn import handle_end_txn
from oncelog.broker.handlers.expire_delegation_token import handle_expire_delegation_token
from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.heartbeat import handle_heartbeat
from oncelog.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.join_group import handle_join_group
from oncelog.broker.handlers.leave_group import handle_leave_group
from oncelog.broker.handlers.list_config_resources import handle_list_config_resources
from oncelog.broker.handlers.list_groups import handle_list_groups
from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.handlers.list_partition_reassignments import handle_list_partition_reassignments
from oncelog.broker.handlers.list_transactions import handle_list_transactions
from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.handlers.offset_commit import handle_offset_commit
from oncelog.broker.handlers.offset_delete import handle_offset_delete
from oncelog.broker.handlers.offset_fetch import handle_offset_fetch
from oncelog.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.handlers.renew_delegation_token import handle_renew_delegation_token
from oncelog.broker.handlers.sasl_authenticate import handle_sasl_authenticate
from oncelog.broker.handlers.sasl_handshake import handle_sasl_handshake
from oncelog.broker.handlers.sync_group import handle_sync_group
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.handlers.update_features import handle_update_features
from oncelog.broker.handlers.write_txn_markers import handle_write_txn_markers


def all_handlers(*, clustered: bool = False) -> tuple[ApiHandler[Any], ...]:
    """Return the handlers of every API that this broker serves; those between brokers only in a cluster.

    ApiVersions is computed from it, so nothing else is ever advertised.
    """
    handlers: tuple[ApiHandler[Any], ...] = (
        handle_add_offsets_to_txn,
        handle_add_partitions_to_txn,
        handle_alter_client_quotas,
        handle_alter_configs,
        handle_alter_partition_reassignments,
        handle_api_versions,
        handle_create_partitions,
        handle_create_topics,
        handle_delete_groups,
        handle_delete_records,
        handle_delete_topics,
        handle_describe_client_quotas,
        handle_describe_cluster,
        handle_describe_configs,
        handle_describe_groups,
        handle_describe_log_dirs,
        handle_describe_producers,
        handle_describe_topic_partitions,
        handle_describe_transactions,
        handle_elect_leaders,
        handle_end_txn,
        handle_fetch,
        handle_find_coordinator,
        handle_heartbeat,
        handle_incremental_alter_configs,
        handle_init_producer_id,
        handle_join_group,
        handle_leave_group,
        handle_list_config_resources,
        handle_list_groups,
        handle_list_offsets,
        handle_list_partition_reassignments,
        handle_list_transactions,
        handle_metadata,
        handle_offset_commit,
        handle_offset_delete,
        handle_offset_fetch,
        handle_offset_for_leader_epoch,
        handle_produce,
        handle_sync_group,
        handle_txn_offset_commit,
        handle_update_features,
        handle_write_txn_markers,
        *_about_security(),
    )
    if clustered:
        handlers += _between_brokers()
    return tuple(sorted(handlers, key=lambda handler: handler.api_key))


def _about_security() -> tuple[ApiHandler[Any], ...]:
    return (
        handle_alter_user_scram_credentials,
        handle_create_acls,
        handle_create_delegation_token,
        handle_delete_acls,
        handle_describe_acls,
        handle_describe_delegation_token,
        handle_describe_user_scram_credentials,
        handle_expire_delegation_token,
        handle_renew_delegation_token,
        handle_sasl_authenticate,
        handle_sasl_handshake,
    )


def _between_brokers() -> tuple[ApiHandler[Any], ...]:
    from oncelog.broker.handlers.alter_partition import handle_alter_partition
    from oncelog.broker.handlers.controlled_shutdown import handle_controlled_shutdown
    from oncelog.broker.handlers.leader_and_isr import handle_leader_and_isr
    from oncelog.broker.handlers.stop_replica import handle_stop_replica
    from oncelog.broker.handlers.update_metadata import handle_update_metadata

    return (
        handle_alter_partition,
        handle_controlled_shutdown,
        handle_leader_and_isr,
        handle_stop_replica,
        handle_update_metadata,
    )
