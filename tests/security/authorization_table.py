"""What each request needs: the rights that Apache Kafka 4.3 requires, and the error without them.

A row is a request and what it needs, in the order in which it is judged. Its fields are written as they are on the
wire; those that are left out have their defaults.
"""

from typing import Any, Final

from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.errors import ErrorCode
from tests.security.authorization_filters import FILTERING_ROWS
from tests.security.authorization_row import GROUP, TOPIC, TRANSACTIONAL_ID, Before, Need, Row, c, g, t, x
from tests.security.authorization_tokens import TOKEN_ROWS
from tests.simulation.requests import batch


def _produced(records: bytearray, transactional_id: str | None) -> dict[str, Any]:
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": 1, "timeout_ms": 1000, "transactional_id": transactional_id, "topic_data": data}


_PARTITIONS: Final = [{"partition_index": 0}]
_TRANSACTIONAL: Final = batch([b"v"], producer_id=7, epoch=0, sequence=0, transactional=True)
_FETCHED: Final = [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]}]
_COMMITTED: Final = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
_MEMBER: Final = {"group_id": GROUP, "member_id": "m", "generation_id": 1}
_ACL: Final = {
    "resource_type": 2,
    "resource_name": "cells-other",
    "principal": "User:nemo",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ACL_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "cells-other",
    "pattern_type_filter": 3,
    "principal_filter": "User:nemo",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_NEW_TOPIC: Final = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
_ADDED: Final = {
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_producer_id": 7,
    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
}
_VERIFIED: Final = {
    "transactional_id": TRANSACTIONAL_ID,
    "producer_id": 7,
    "topics": [{"name": TOPIC, "partitions": [0]}],
}
_MARKER: Final = {"producer_id": 7, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
_SETTING: Final = [{"name": "retention.ms", "value": "1000"}]
_BROKER_SETTING: Final = [{"name": "log.retention.ms", "value": "1000000"}]
_OFFSETS_OF_GROUP: Final = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": _PARTITIONS}]}

ROWS: Final = (
    Row(request="Produce", version=11, fields=_produced(batch([b"v"]), None), needs=(t(Op.WRITE),)),
    Row(
        request="Produce",
        version=11,
        title="transactional",
        fields=_produced(_TRANSACTIONAL, TRANSACTIONAL_ID),
        needs=(x(Op.WRITE), t(Op.WRITE)),
    ),
    Row(request="Fetch", version=12, fields={"max_bytes": 1000, "topics": _FETCHED}, needs=(t(Op.READ),)),
    Row(
        request="Fetch",
        version=12,
        title="as a follower",
        fields={"replica_id": 5, "max_bytes": 1000, "topics": _FETCHED},
        needs=(c(Op.CLUSTER_ACTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED),),
    ),
    Row(
        request="ListOffsets",
        version=7,
        fields={"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        needs=(t(Op.DESCRIBE),),
    ),
    Row(request="Metadata", version=9, fields={"topics": [{"name": TOPIC}]}, needs=(t(Op.DESCRIBE),)),
    Row(
        request="DescribeTopicPartitions",
        version=0,
        fields={"topics": [{"name": TOPIC}], "response_partition_limit": 10},
        needs=(t(Op.DESCRIBE),),
    ),
    Row(
        request="OffsetForLeaderEpoch",
        version=4,
        fields={"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]},
        needs=(t(Op.DESCRIBE),),
    ),
    Row(
        request="OffsetCommit",
        version=8,
        fields={"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": _COMMITTED},
        needs=(g(Op.READ), t(Op.READ)),
    ),
    Row(request="OffsetFetch", version=7, fields={"group_id": GROUP}, needs=(g(Op.DESCRIBE),)),
    Row(
        request="OffsetDelete",
        version=0,
        fields=_OFFSETS_OF_GROUP,
        needs=(g(Op.DELETE), t(Op.READ)),
        before=Before.OFFSET,
    ),
    Row(request="FindCoordinator", version=3, fields={"key": GROUP}, needs=(g(Op.DESCRIBE),)),
    Row(
        request="FindCoordinator",
        version=3,
        title="of transactions",
        fields={"key": TRANSACTIONAL_ID, "key_type": 1},
        needs=(x(Op.DESCRIBE),),
    ),
    Row(
        request="JoinGroup",
        version=5,
        fields={"group_id": GROUP, "session_timeout_ms": 10_000, "protocol_type": "consumer"},
        needs=(g(Op.READ),),
    ),
    Row(request="Heartbeat", version=4, fields=_MEMBER, needs=(g(Op.READ),)),
    Row(request="LeaveGroup", version=2, fields={"group_id": GROUP, "member_id": "m"}, needs=(g(Op.READ),)),
    Row(request="SyncGroup", version=4, fields=_MEMBER, needs=(g(Op.READ),)),
    Row(request="DescribeGroups", version=5, fields={"groups": [GROUP]}, needs=(g(Op.DESCRIBE),)),
    Row(request="DeleteGroups", version=2, fields={"groups_names": [GROUP]}, needs=(g(Op.DELETE),)),
    Row(
        request="CreateTopics",
        version=6,
        title="by the topic",
        fields={"topics": [_NEW_TOPIC], "validate_only": True},
        needs=(t(Op.CREATE),),
    ),
    Row(
        request="CreateTopics",
        version=6,
        title="by the cluster",
        fields={"topics": [_NEW_TOPIC], "validate_only": True},
        needs=(c(Op.CREATE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),),
    ),
    Row(
        request="DeleteTopics",
        version=6,
        title="by name",
        fields={"topics": [{"name": TOPIC}], "timeout_ms": 5000},
        needs=(t(Op.DELETE, needs_describe=True),),
        before=Before.TOPIC,
    ),
    Row(
        request="DeleteTopics",
        version=6,
        title="by id",
        fields=lambda made: {"topics": [{"name": None, "topic_id": made.topic_id}], "timeout_ms": 5000},
        needs=(t(Op.DELETE),),
        before=Before.TOPIC,
    ),
    Row(
        request="DeleteTopics",
        version=6,
        title="by the cluster",
        fields={"topics": [{"name": TOPIC}], "timeout_ms": 5000},
        needs=(c(Op.DELETE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),),
        before=Before.TOPIC,
    ),
    Row(
        request="CreatePartitions",
        version=3,
        fields={"topics": [{"name": TOPIC, "count": 3}], "validate_only": True},
        needs=(t(Op.ALTER),),
    ),
    Row(
        request="DeleteRecords",
        version=2,
        fields={"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]},
        needs=(t(Op.DELETE),),
    ),
    Row(
        request="DescribeProducers",
        version=0,
        fields={"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        needs=(t(Op.READ),),
    ),
    Row(
        request="InitProducerId",
        version=4,
        fields={
            "transactional_id": TRANSACTIONAL_ID,
            "transaction_timeout_ms": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        needs=(x(Op.WRITE),),
    ),
    Row(
        request="InitProducerId",
        version=4,
        title="idempotent",
        fields={"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        needs=(c(Op.IDEMPOTENT_WRITE),),
    ),
    Row(
        request="InitProducerId",
        version=4,
        title="idempotent, by any topic",
        fields={"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        needs=(Need(Type.TOPIC, Op.WRITE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),),
    ),
    Row(request="AddPartitionsToTxn", version=3, fields=_ADDED, needs=(x(Op.WRITE), t(Op.WRITE))),
    Row(request="AddPartitionsToTxn", version=4, fields={"transactions": [_VERIFIED]}, needs=(c(Op.CLUSTER_ACTION),)),
    Row(
        request="AddOffsetsToTxn",
        version=3,
        fields={"transactional_id": TRANSACTIONAL_ID, "producer_id": 7, "group_id": GROUP},
        needs=(x(Op.WRITE), g(Op.READ)),
    ),
    Row(
        request="EndTxn",
        version=3,
        fields={"transactional_id": TRANSACTIONAL_ID, "producer_id": 7},
        needs=(x(Op.WRITE),),
    ),
    Row(
        request="TxnOffsetCommit",
        version=3,
        fields={"transactional_id": TRANSACTIONAL_ID, "group_id": GROUP, "producer_id": 7, "topics": _COMMITTED},
        needs=(x(Op.WRITE), g(Op.READ), t(Op.READ)),
    ),
    Row(request="WriteTxnMarkers", version=1, fields={"markers": [_MARKER]}, needs=(c(Op.CLUSTER_ACTION),)),
    Row(request="WriteTxnMarkers", version=1, title="by ALTER", fields={"markers": [_MARKER]}, needs=(c(Op.ALTER),)),
    Row(
        request="DescribeTransactions",
        version=0,
        fields={"transactional_ids": [TRANSACTIONAL_ID]},
        needs=(x(Op.DESCRIBE),),
    ),
    Row(request="DescribeAcls", version=3, fields=_ACL_FILTER, needs=(c(Op.DESCRIBE),)),
    Row(request="CreateAcls", version=3, fields={"creations": [_ACL]}, needs=(c(Op.ALTER),)),
    Row(request="DeleteAcls", version=3, fields={"filters": [_ACL_FILTER]}, needs=(c(Op.ALTER),)),
    Row(
        request="DescribeConfigs",
        version=4,
        title="of a topic",
        fields={"resources": [{"resource_type": 2, "resource_name": TOPIC}]},
        needs=(t(Op.DESCRIBE_CONFIGS),),
    ),
    Row(
        request="DescribeConfigs",
        version=4,
        title="of a broker",
        fields={"resources": [{"resource_type": 4, "resource_name": "1"}]},
        needs=(c(Op.DESCRIBE_CONFIGS),),
    ),
    Row(
        request="DescribeConfigs",
        version=4,
        title="of levels of the log",
        fields={"resources": [{"resource_type": 8, "resource_name": "1"}]},
        needs=(c(Op.DESCRIBE_CONFIGS),),
    ),
    Row(
        request="AlterConfigs",
        version=2,
        title="of a topic",
        fields={
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": _SETTING}],
            "validate_only": True,
        },
        needs=(t(Op.ALTER_CONFIGS),),
    ),
    Row(
        request="AlterConfigs",
        version=2,
        title="of all brokers",
        fields={
            "resources": [{"resource_type": 4, "resource_name": "", "configs": _BROKER_SETTING}],
            "validate_only": True,
        },
        needs=(c(Op.ALTER_CONFIGS),),
    ),
    Row(
        request="IncrementalAlterConfigs",
        version=1,
        title="of a topic",
        fields={
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": _SETTING}],
            "validate_only": True,
        },
        needs=(t(Op.ALTER_CONFIGS),),
    ),
    Row(
        request="IncrementalAlterConfigs",
        version=1,
        title="of all brokers",
        fields={
            "resources": [{"resource_type": 4, "resource_name": "", "configs": _BROKER_SETTING}],
            "validate_only": True,
        },
        needs=(c(Op.ALTER_CONFIGS),),
    ),
    Row(
        request="DescribeLogDirs",
        version=4,
        fields={"topics": [{"topic": TOPIC, "partitions": [0]}]},
        needs=(c(Op.DESCRIBE),),
    ),
    Row(
        request="ElectLeaders",
        version=2,
        fields={"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 1000},
        needs=(c(Op.ALTER),),
    ),
    Row(
        request="AlterPartitionReassignments",
        version=0,
        fields={
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
            "timeout_ms": 1000,
        },
        needs=(c(Op.ALTER),),
    ),
    Row(
        request="ListPartitionReassignments",
        version=0,
        fields={"topics": None, "timeout_ms": 1000},
        needs=(c(Op.DESCRIBE),),
    ),
    Row(
        request="DescribeUserScramCredentials", version=0, fields={"users": [{"name": "nemo"}]}, needs=(c(Op.DESCRIBE),)
    ),
    Row(
        request="AlterUserScramCredentials",
        version=0,
        fields={"deletions": [{"name": "nemo", "mechanism": 1}]},
        needs=(c(Op.ALTER),),
    ),
    Row(request="UpdateFeatures", version=1, fields={"timeout_ms": 1000, "validate_only": True}, needs=(c(Op.ALTER),)),
    Row(
        request="DescribeClientQuotas",
        version=1,
        fields={"components": [{"entity_type": "user", "match_type": 0, "match": "nemo"}]},
        needs=(c(Op.DESCRIBE_CONFIGS),),
    ),
    Row(
        request="AlterClientQuotas",
        version=1,
        fields={
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nemo"}],
                    "ops": [{"key": "producer_byte_rate", "value": 9999.0}],
                }
            ],
            "validate_only": True,
        },
        needs=(c(Op.ALTER_CONFIGS),),
    ),
    Row(request="ListConfigResources", version=0, fields={}, needs=(c(Op.DESCRIBE_CONFIGS),)),
    *FILTERING_ROWS,
    *TOKEN_ROWS,
)
