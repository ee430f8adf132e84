"""Oncelog: a Kafka-compatible broker that keeps exactly-once, its Python client and its PySpark data source.

The names below are those of the client: what programs make, pass, receive and catch::

    from oncelog import Producer

    async with Producer("localhost:9092") as producer:
        print(await (await producer.send("orders", b"42 apples")))

``docs/reference/python-client.md`` describes them. Each is loaded when it is first used: the broker, the command line
and Spark's workers import this package too, and need none.

In the repository the packages ``oncelog.broker``, ``oncelog.clients`` and so on are symbolic links to the folders of
that name beside this one. A wheel has the files themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog.clients import VERSION as __version__

if TYPE_CHECKING:
    from oncelog.clients.admin.abort_verification import Check
    from oncelog.clients.admin.admin import Admin
    from oncelog.clients.admin.admin_config import AdminConfig
    from oncelog.clients.admin.cluster_description import BrokerDescription, ClusterDescription
    from oncelog.clients.admin.configs import ConfigChange, ConfigEntry, Operation, Resource, ResourceType
    from oncelog.clients.admin.features import FeatureDescription, FeatureMetadata, FeatureUpdate
    from oncelog.clients.admin.fencing import Fencing
    from oncelog.clients.admin.group_offsets import CommittedOffset, GroupOffsets
    from oncelog.clients.admin.groups import GroupDescription, GroupListing, GroupMember, MemberToRemove
    from oncelog.clients.admin.hanging_transactions import Findings, HangingTransaction, OpenTransaction, Reason
    from oncelog.clients.admin.log_dirs import LogDirDescription, ReplicaSize
    from oncelog.clients.admin.offsets import EARLIEST, LATEST, FoundOffset
    from oncelog.clients.admin.producers import ActiveProducer
    from oncelog.clients.admin.tokens import DelegationToken
    from oncelog.clients.admin.topics import BROKER_DEFAULT, NewTopic, PartitionDescription, TopicDescription
    from oncelog.clients.admin.transaction_abort import AbortAction, AbortPlan, WhichTransaction
    from oncelog.clients.admin.transaction_history import TransactionHistory
    from oncelog.clients.admin.transaction_records import HistoryRecord, TransactionSnapshot
    from oncelog.clients.admin.transactions import TransactionDescription, TransactionListing
    from oncelog.clients.admin.txn_markers import AbortMarker
    from oncelog.clients.bootstrap import parse_bootstrap
    from oncelog.clients.cluster import Cluster
    from oncelog.clients.connection import Address
    from oncelog.clients.consumer.consumer import Consumer
    from oncelog.clients.consumer.consumer_config import ConsumerConfig
    from oncelog.clients.consumer.consumer_errors import (
        AssignmentFailed,
        ConsumerClosed,
        ConsumerError,
        InstanceFenced,
        LogTruncated,
        NoOffsetForPartition,
        OffsetOutOfRange,
        RebalanceInProgress,
        UnreadableRecords,
    )
    from oncelog.clients.consumer.consumer_record import ConsumerRecord, TimestampType
    from oncelog.clients.consumer.rebalance_listener import RebalanceListener
    from oncelog.clients.errors import (
        AuthenticationFailed,
        BackgroundTaskFailed,
        BadResponse,
        BrokerAbsent,
        BrokerRefused,
        BrokerSilent,
        BufferFull,
        ClientClosed,
        ClientError,
        CommitFailed,
        ConnectionLost,
        DeliveryTimedOut,
        FatalProducerError,
        IllegalState,
        NoBrokerReachable,
        NotAuthorized,
        OperationTimedOut,
        OutcomeUnknown,
        ProducerClosed,
        ProducerError,
        ProducerFenced,
        RecordTooLarge,
        Refusal,
        Remedy,
        RequestTimedOut,
        TlsFailed,
        TransactionAbortable,
        TransactionAborted,
        Unreachable,
        VersionNotSupported,
    )
    from oncelog.clients.group_metadata import ConsumerGroupMetadata
    from oncelog.clients.obstacles import Obstacle
    from oncelog.clients.offset_and_metadata import OffsetAndMetadata
    from oncelog.clients.partition_results import PartitionResults
    from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
    from oncelog.clients.producer.producer import Producer
    from oncelog.clients.producer.producer_config import ProducerConfig
    from oncelog.clients.producer.record_metadata import RecordMetadata
    from oncelog.clients.tls import TlsSettings
    from oncelog.protocol.acl import (
        AccessControlEntry,
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AclResourceType,
        PatternType,
        ResourcePattern,
    )
    from oncelog.protocol.client_quotas import AnyName, DefaultName, QuotaEntity, QuotaFilter
    from oncelog.protocol.config_source import ConfigSource
    from oncelog.protocol.delegation_token import TokenInformation
    from oncelog.protocol.errors import ErrorCode
    from oncelog.protocol.principal import Principal
    from oncelog.protocol.records.compression import CorruptRecord
    from oncelog.protocol.topic_partition import TopicPartition
else:
    _MODULES = {
        "oncelog.clients.admin.abort_verification": ("Check",),
        "oncelog.clients.admin.admin": ("Admin",),
        "oncelog.clients.admin.admin_config": ("AdminConfig",),
        "oncelog.clients.admin.cluster_description": ("BrokerDescription", "ClusterDescription"),
        "oncelog.clients.admin.configs": ("ConfigChange", "ConfigEntry", "Operation", "Resource", "ResourceType"),
        "oncelog.clients.admin.features": ("FeatureDescription", "FeatureMetadata", "FeatureUpdate"),
        "oncelog.clients.admin.fencing": ("Fencing",),
        "oncelog.clients.admin.group_offsets": ("CommittedOffset", "GroupOffsets"),
        "oncelog.clients.admin.groups": ("GroupDescription", "GroupListing", "GroupMember", "MemberToRemove"),
        "oncelog.clients.admin.hanging_transactions": ("Findings", "HangingTransaction", "OpenTransaction", "Reason"),
        "oncelog.clients.admin.log_dirs": ("LogDirDescription", "ReplicaSize"),
        "oncelog.clients.admin.offsets": ("EARLIEST", "FoundOffset", "LATEST"),
        "oncelog.clients.admin.producers": ("ActiveProducer",),
        "oncelog.clients.admin.tokens": ("DelegationToken",),
        "oncelog.clients.admin.topics": ("BROKER_DEFAULT", "NewTopic", "PartitionDescription", "TopicDescription"),
        "oncelog.clients.admin.transaction_abort": ("AbortAction", "AbortPlan", "WhichTransaction"),
        "oncelog.clients.admin.transaction_history": ("TransactionHistory",),
        "oncelog.clients.admin.transaction_records": ("HistoryRecord", "TransactionSnapshot"),
        "oncelog.clients.admin.transactions": ("TransactionDescription", "TransactionListing"),
        "oncelog.clients.admin.txn_markers": ("AbortMarker",),
        "oncelog.clients.bootstrap": ("parse_bootstrap",),
        "oncelog.clients.cluster": ("Cluster",),
        "oncelog.clients.connection": ("Address",),
        "oncelog.clients.consumer.consumer": ("Consumer",),
        "oncelog.clients.consumer.consumer_config": ("ConsumerConfig",),
        "oncelog.clients.consumer.consumer_errors": (
            "AssignmentFailed",
            "ConsumerClosed",
            "ConsumerError",
            "InstanceFenced",
            "LogTruncated",
            "NoOffsetForPartition",
            "OffsetOutOfRange",
            "RebalanceInProgress",
            "UnreadableRecords",
        ),
        "oncelog.clients.consumer.consumer_record": ("ConsumerRecord", "TimestampType"),
        "oncelog.clients.consumer.rebalance_listener": ("RebalanceListener",),
        "oncelog.clients.errors": (
            "AuthenticationFailed",
            "BackgroundTaskFailed",
            "BadResponse",
            "BrokerAbsent",
            "BrokerRefused",
            "BrokerSilent",
            "BufferFull",
            "ClientClosed",
            "ClientError",
            "CommitFailed",
            "ConnectionLost",
            "DeliveryTimedOut",
            "FatalProducerError",
            "IllegalState",
            "NoBrokerReachable",
            "NotAuthorized",
            "OperationTimedOut",
            "OutcomeUnknown",
            "ProducerClosed",
            "ProducerError",
            "ProducerFenced",
            "RecordTooLarge",
            "Refusal",
            "Remedy",
            "RequestTimedOut",
            "TlsFailed",
            "TransactionAbortable",
            "TransactionAborted",
            "Unreachable",
            "VersionNotSupported",
        ),
        "oncelog.clients.group_metadata": ("ConsumerGroupMetadata",),
        "oncelog.clients.obstacles": ("Obstacle",),
        "oncelog.clients.offset_and_metadata": ("OffsetAndMetadata",),
        "oncelog.clients.partition_results": ("PartitionResults",),
        "oncelog.clients.producer.future_record_metadata": ("FutureRecordMetadata",),
        "oncelog.clients.producer.producer": ("Producer",),
        "oncelog.clients.producer.producer_config": ("ProducerConfig",),
        "oncelog.clients.producer.record_metadata": ("RecordMetadata",),
        "oncelog.clients.tls": ("TlsSettings",),
        "oncelog.protocol.acl": (
            "AccessControlEntry",
            "AclBinding",
            "AclBindingFilter",
            "AclOperation",
            "AclPermissionType",
            "AclResourceType",
            "PatternType",
            "ResourcePattern",
        ),
        "oncelog.protocol.client_quotas": ("AnyName", "DefaultName", "QuotaEntity", "QuotaFilter"),
        "oncelog.protocol.config_source": ("ConfigSource",),
        "oncelog.protocol.delegation_token": ("TokenInformation",),
        "oncelog.protocol.errors": ("ErrorCode",),
        "oncelog.protocol.principal": ("Principal",),
        "oncelog.protocol.records.compression": ("CorruptRecord",),
        "oncelog.protocol.topic_partition": ("TopicPartition",),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name):
        """Load a public name. Type checkers do not see this function: to them an unknown name is an error."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "AbortAction",
    "AbortMarker",
    "AbortPlan",
    "AccessControlEntry",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "ActiveProducer",
    "Address",
    "Admin",
    "AdminConfig",
    "AnyName",
    "AssignmentFailed",
    "AuthenticationFailed",
    "BROKER_DEFAULT",
    "BackgroundTaskFailed",
    "BadResponse",
    "BrokerAbsent",
    "BrokerDescription",
    "BrokerRefused",
    "BrokerSilent",
    "BufferFull",
    "Check",
    "ClientClosed",
    "ClientError",
    "Cluster",
    "ClusterDescription",
    "CommitFailed",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigSource",
    "ConnectionLost",
    "Consumer",
    "ConsumerClosed",
    "ConsumerConfig",
    "ConsumerError",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptRecord",
    "DefaultName",
    "DelegationToken",
    "DeliveryTimedOut",
    "EARLIEST",
    "ErrorCode",
    "FatalProducerError",
    "FeatureDescription",
    "FeatureMetadata",
    "FeatureUpdate",
    "Fencing",
    "Findings",
    "FoundOffset",
    "FutureRecordMetadata",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffsets",
    "HangingTransaction",
    "HistoryRecord",
    "IllegalState",
    "InstanceFenced",
    "LATEST",
    "LogDirDescription",
    "LogTruncated",
    "MemberToRemove",
    "NewTopic",
    "NoBrokerReachable",
    "NoOffsetForPartition",
    "NotAuthorized",
    "Obstacle",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OpenTransaction",
    "Operation",
    "OperationTimedOut",
    "OutcomeUnknown",
    "PartitionDescription",
    "PartitionResults",
    "PatternType",
    "Principal",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerError",
    "ProducerFenced",
    "QuotaEntity",
    "QuotaFilter",
    "Reason",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLarge",
    "Refusal",
    "Remedy",
    "ReplicaSize",
    "RequestTimedOut",
    "Resource",
    "ResourcePattern",
    "ResourceType",
    "TimestampType",
    "TlsFailed",
    "TlsSettings",
    "TokenInformation",
    "TopicDescription",
    "TopicPartition",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionHistory",
    "TransactionListing",
    "TransactionSnapshot",
    "Unreachable",
    "UnreadableRecords",
    "VersionNotSupported",
    "WhichTransaction",
    "parse_bootstrap",
    "__version__",
]
