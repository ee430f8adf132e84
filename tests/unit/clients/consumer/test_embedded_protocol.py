"""What members tell each other, in every version that there is and in those to come."""

import pytest

from oncelog.clients.consumer.assignors.assignor import MemberSubscription
from oncelog.clients.consumer.consumer_errors import AssignmentFailed
from oncelog.clients.consumer.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.protocol.compiler import encoder
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.internal.consumer_protocol import TopicPartition as OwnedTopic
from oncelog.protocol.topic_partition import TopicPartition

OWNED = (TopicPartition("clicks", 0), TopicPartition("orders", 1), TopicPartition("orders", 2))


def encoded(**fields: object) -> bytes:
    arguments: dict[str, object] = {"owned": OWNED, "generation_id": 4, "user_data": b"x", "rack_id": "r1"}
    return encode_subscription(["orders", "clicks"], **{**arguments, **fields})  # type: ignore[arg-type]


def test_subscription_encoded_and_decoded_is_equal() -> None:
    assert decode_subscription(encoded(), "instance") == MemberSubscription(
        topics=frozenset({"orders", "clicks"}),
        owned=OWNED,
        generation_id=4,
        group_instance_id="instance",
        user_data=b"x",
    )
    assert decode_subscription(encoded(user_data=None), None).user_data is None


@pytest.mark.parametrize(("version", "owned", "generation"), [(0, (), -1), (1, OWNED[1:], -1), (2, OWNED[1:], 4)])
def test_members_of_older_clients_are_understood(
    version: int, owned: tuple[TopicPartition, ...], generation: int
) -> None:
    whole = ConsumerProtocolSubscription(topics=["orders"], generation_id=4)
    whole.owned_partitions = [OwnedTopic(topic="orders", partitions=[1, 2])]
    data = b"".join(encoder(ConsumerProtocolSubscription, version)(whole, bytearray(version.to_bytes(2, "big"))))
    subscription = decode_subscription(data, None)
    assert (subscription.topics, subscription.owned, subscription.generation_id) == ({"orders"}, owned, generation)


def test_future_version_is_decoded_as_the_newest_known() -> None:
    data = (9).to_bytes(2, "big") + encoded()[2:] + b"more"
    assert decode_subscription(data, None).owned == OWNED


def test_assignment_encoded_and_decoded_is_equal() -> None:
    assert decode_assignment(encode_assignment(OWNED)) == list(OWNED)
    assert decode_assignment(encode_assignment([])) == []


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\x7f\xff\xff\xff", b"\xff\xff\0\0\0\0"])
def test_bytes_of_no_consumer_protocol_raise(data: bytes) -> None:
    for decode in (decode_assignment, lambda data: decode_subscription(data, None)):
        with pytest.raises(AssignmentFailed, match="does not speak the consumer protocol"):
            decode(data)
