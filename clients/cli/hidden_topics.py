"""Whether there may be topics that a client does not see, because it may not describe them.

A broker leaves those out of a list without a word. But it refuses a name that the client may not describe whether there
is such a topic or not: so the request is for a name that no topic has.
"""

from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_NO_TOPIC: Final = "oncelog-sees-every-topic"
HIDDEN: Final = (
    "this client may not see every topic, and what it does not see is not judged: an administrator adds the right with "
    "`oncelog acl add PRINCIPAL describe --topic '*'`"
)


async def may_hide_topics(cluster: Cluster) -> bool:
    """Return whether there are names of topics that the client may not describe. Raises ``ClientError``."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=_NO_TOPIC)], allow_auto_topic_creation=False)
    response = await cluster.call(AnyBroker(), request, MetadataResponse)
    return any(topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in response.topics)
