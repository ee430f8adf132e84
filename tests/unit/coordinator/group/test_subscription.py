"""Subscriptions are written by clients: what is read of them is bounded, and nothing is read before it is needed."""

import struct
import time

import pytest

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.subscription import MAX_TOPICS, read_topics
from oncelog.protocol.compiler import encode
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tests.unit.coordinator.group.group_driver import Driver

_BOMB_TOPICS = 2_000_000
_BOMB_SECONDS = 0.3
"""Reading all of the bomb takes five times as long."""


def subscription(*topics: str, user_data: bytes | None = None, version: int = 0) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=user_data)
    return version.to_bytes(2, "big") + encode(message, version)


def empty_names(count: int) -> bytes:
    return struct.pack(">hi", 0, count) + bytes(2 * count) + struct.pack(">i", -1)


def test_read_topics_beyond_the_limit_cannot_be_read() -> None:
    assert read_topics([subscription("a", "b"), subscription("c")], 3) == {"a", "b", "c"}
    assert read_topics([subscription("a", "b"), subscription("c", "d")], 3) is None


def test_read_topics_of_members_that_name_the_same_counts_once() -> None:
    same = [subscription("a", "b", user_data=bytes([n]) * n, version=n % 4) for n in range(100)]
    assert read_topics(same, 2) == {"a", "b"}


def test_read_topics_of_a_longer_list_with_the_same_beginning_is_read() -> None:
    assert read_topics([subscription(), subscription("a"), subscription("a", "b")]) == {"a", "b"}


@pytest.mark.parametrize("metadata", [b"", b"\0", bytes(5), b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff"])
def test_read_topics_of_no_subscription_cannot_be_read(metadata: bytes) -> None:
    assert read_topics([metadata]) is None


def test_join_with_a_subscription_of_millions_is_not_read() -> None:
    driver = Driver()
    metadata = empty_names(_BOMB_TOPICS)
    began = time.thread_time()
    member = driver.join(protocols=[("range", metadata)]).result.member_id
    driver.sync(member, {member: b"a"})
    loaded = Group.from_image("g", driver.log[-1], driver.rules)
    assert all("any" in group.subscription.read(group.protocol_type) for group in (driver.group, loaded))
    assert time.thread_time() - began < _BOMB_SECONDS


def test_read_topics_up_to_the_limit_are_known() -> None:
    assert read_topics([empty_names(MAX_TOPICS)]) == {""}
    assert read_topics([empty_names(MAX_TOPICS + 1)]) is None
