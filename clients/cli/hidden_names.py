"""Whether there may be topics, groups and transactional ids that a client does not see: it may not describe them.

A broker leaves those out of a list without a word. But it refuses a name that the client may not describe whether it
exists or not: so the request is for a name that is not in use.
"""

from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_NOT_IN_USE: Final = "oncelog-sees-every-name"
HIDDEN: Final = (
    "this client may not see every topic, and what it does not see is not judged: an administrator adds the right with "
    "`oncelog acl add PRINCIPAL describe --topic '*'`"
)


async def may_hide_topics(cluster: Cluster) -> bool:
    """Return whether there are names of topics that the client may not describe. Raises ``ClientError``."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=_NOT_IN_USE)], allow_auto_topic_creation=False)
    response = await cluster.call(AnyBroker(), request, MetadataResponse)
    return any(topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in response.topics)


async def may_hide_groups(cluster: Cluster) -> bool:
    """Return whether there are groups that the client may not describe. Raises ``ClientError``."""
    response = await cluster.call(AnyBroker(), DescribeGroupsRequest(groups=[_NOT_IN_USE]), DescribeGroupsResponse)
    return any(group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED for group in response.groups)


async def may_hide_transactional_ids(cluster: Cluster) -> bool:
    """Return whether there are transactional ids that the client may not describe. Raises ``ClientError``."""
    request = DescribeTransactionsRequest(transactional_ids=[_NOT_IN_USE])
    response = await cluster.call(AnyBroker(), request, DescribeTransactionsResponse)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return any(state.error_code == denied for state in response.transaction_states)
