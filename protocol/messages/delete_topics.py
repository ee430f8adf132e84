"""DeleteTopics (API key 20): versions 1-6, flexible from 4.

Deletes topics by name or by id.

1: throttle time. 2: throttling moves to the client. 3: TOPIC_DELETION_DISABLED may be returned.
5: an error message, and THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599).
6: topics are structures with a name or an id (KIP-516); UNKNOWN_TOPIC_ID may be returned.
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, array_of, int16, int32, string, uuid


class DeleteTopicState(Message):
    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: bytes = uuid("6+", default=ZERO_UUID)


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default_factory=list)
    topic_names: list[str] = array_of(string, "0-5", default_factory=list)
    timeout_ms: int = int32("0+", default=0)


class DeletableTopicResult(Message):
    name: str | None = string("0+", default="", nullable="6+")
    topic_id: bytes = uuid("6+", default=ZERO_UUID)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("5+", default=None, nullable="5+")


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+", default_factory=list)
