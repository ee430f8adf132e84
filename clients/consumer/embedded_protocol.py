"""The consumer protocol inside JoinGroup and SyncGroup: subscriptions and assignments as bytes. Pure.

Two bytes of version, then the message of ``oncelog.protocol.internal.consumer_protocol``. Every version begins with the
fields of the one before, so one from the future is read as the newest that is known (Kafka's
``ConsumerProtocol.java``).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from oncelog.clients.consumer.assignors.assignor import MemberSubscription
from oncelog.clients.consumer.consumer_errors import AssignmentFailed
from oncelog.protocol.compiler import decoder, encoder
from oncelog.protocol.internal.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from oncelog.protocol.internal.consumer_protocol import TopicPartition as OwnedTopic
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

_VERSION: Final = Struct(">h")
M = TypeVar("M", bound=Message)


def encode_subscription(
    topics: Iterable[str],
    *,
    owned: Iterable[TopicPartition],
    generation_id: int,
    user_data: bytes | None,
    rack_id: str | None,
) -> bytes:
    """Encode a member's subscription for JoinGroup."""
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[OwnedTopic(topic=topic, partitions=indexes) for topic, indexes in _by_topic(owned)],
        generation_id=generation_id,
        rack_id=rack_id,
    )
    return _encode(subscription)


def decode_subscription(data: bytes, group_instance_id: str | None) -> MemberSubscription:
    """Decode a member's subscription. Raises ``AssignmentFailed`` if it cannot be read."""
    subscription = _decode(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        topics=frozenset(subscription.topics),
        owned=tuple(
            TopicPartition(owned.topic, index) for owned in subscription.owned_partitions for index in owned.partitions
        ),
        generation_id=subscription.generation_id,
        group_instance_id=group_instance_id,
        user_data=subscription.user_data,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment for SyncGroup."""
    assigned = [AssignedTopicPartition(topic=topic, partitions=indexes) for topic, indexes in _by_topic(partitions)]
    return _encode(ConsumerProtocolAssignment(assigned_partitions=assigned))


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode this member's assignment. Raises ``AssignmentFailed`` if it cannot be read."""
    assignment = _decode(ConsumerProtocolAssignment, data)
    return [
        TopicPartition(assigned.topic, index)
        for assigned in assignment.assigned_partitions
        for index in assigned.partitions
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> Sequence[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return list(topics.items())


def _encode(message: Message) -> bytes:
    version = type(message).versions.last
    return b"".join(encoder(type(message), version)(message, bytearray(_VERSION.pack(version))))


def _decode(cls: type[M], data: bytes) -> M:
    try:
        version: int = _VERSION.unpack_from(data)[0]
        return decoder(cls, min(version, cls.versions.last))(memoryview(data), _VERSION.size)[0]
    except (StructError, ValueError) as error:
        raise AssignmentFailed(f"a member of the group does not speak the consumer protocol: {error}") from error
