"""Requests whose responses leave out, without an error, what a client may not see."""

from typing import Any, Final

from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclResourceType as Type
from tests.security.authorization_row import GROUP, TOPIC, TRANSACTIONAL_ID, Before, Made, Row, g, shown, x

_NOTHING_MAY_BE_KNOWN: Final = 0
"""The operations on the cluster that a client is shown which may not describe it."""


def _shows_topic(response: Any, made: Made) -> bool:
    return TOPIC in {topic.name for topic in response.topics}


def _shows_group(response: Any, made: Made) -> bool:
    return GROUP in {group.group_id for group in response.groups}


def _shows_operations(response: Any, made: Made) -> bool:
    return bool(response.cluster_authorized_operations != _NOTHING_MAY_BE_KNOWN)


FILTERING_ROWS: Final = (
    Row(
        request="Metadata",
        version=9,
        title="of all topics",
        fields={"topics": None},
        needs=(shown(Type.TOPIC, Op.DESCRIBE),),
        shows=_shows_topic,
    ),
    Row(
        request="DescribeTopicPartitions",
        version=0,
        title="of all topics",
        fields={"topics": [], "response_partition_limit": 1000},
        needs=(shown(Type.TOPIC, Op.DESCRIBE),),
        shows=_shows_topic,
    ),
    Row(
        request="OffsetFetch",
        version=7,
        title="of all topics",
        fields={"group_id": GROUP, "topics": None},
        needs=(g(Op.DESCRIBE), shown(Type.TOPIC, Op.DESCRIBE)),
        before=Before.OFFSET,
        shows=_shows_topic,
    ),
    Row(
        request="ListGroups",
        version=4,
        title="by the group",
        fields={},
        needs=(shown(Type.GROUP, Op.DESCRIBE),),
        before=Before.OFFSET,
        shows=_shows_group,
    ),
    Row(
        request="ListGroups",
        version=4,
        title="by the cluster",
        fields={},
        needs=(shown(Type.CLUSTER, Op.DESCRIBE),),
        before=Before.OFFSET,
        shows=_shows_group,
    ),
    Row(
        request="DescribeTransactions",
        version=0,
        title="with its topics",
        fields={"transactional_ids": [TRANSACTIONAL_ID]},
        needs=(x(Op.DESCRIBE), shown(Type.TOPIC, Op.DESCRIBE)),
        before=Before.TRANSACTION,
        shows=lambda response, made: [topic.topic for topic in response.transaction_states[0].topics] == [TOPIC],
    ),
    Row(
        request="ListTransactions",
        version=0,
        fields={},
        needs=(shown(Type.TRANSACTIONAL_ID, Op.DESCRIBE),),
        before=Before.TRANSACTION,
        shows=lambda response, made: (
            TRANSACTIONAL_ID in {each.transactional_id for each in response.transaction_states}
        ),
    ),
    Row(
        request="DescribeCluster",
        version=1,
        title="with what may be done",
        fields={"include_cluster_authorized_operations": True},
        needs=(shown(Type.CLUSTER, Op.DESCRIBE),),
        shows=_shows_operations,
    ),
)
