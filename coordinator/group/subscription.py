"""The topics that the members of a consumer group subscribe to, read out of their metadata when a request needs them.

Metadata is written by clients: one JoinGroup may name millions of topics. So nothing is read while a group rebalances
or is loaded, and what is read is bounded: the members of a group may name ``MAX_TOPICS`` topics between them, where
members that name the same topics in the same order count once. A group that names more, or whose metadata is no
subscription, cannot be read, and is taken to subscribe to every topic.
"""

import struct
from collections.abc import Iterable
from typing import Final

from oncelog.protocol.compiler import decoder
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.primitives import DecodeError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
MAX_TOPICS: Final = 100_000
"""Topics that the members of one group name between them; more are not read."""

_VERSION_SIZE: Final = 2
_COUNT: Final = struct.Struct(">i")
_USER_DATA_SIZE: Final = 4
_SMALLEST_TOPIC: Final = 2
_REMEMBERED: Final = 8
"""How many different lists of topics are recognised when another member names them."""


class Subscription:
    """What the members of one generation subscribe to. It holds their metadata as it came."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: Iterable[bytes] | None = None) -> None:
        """Keep the metadata of each member under the generation's protocol; None where it is no subscription."""
        self._metadata = None if metadata is None else tuple(metadata)

    def read(self, protocol_type: str | None) -> "SubscribedTopics":
        """Return the topics of a group that has this type now."""
        names = None if self._metadata is None else read_topics(self._metadata)
        return SubscribedTopics(names, otherwise=protocol_type == CONSUMER_PROTOCOL_TYPE)


class SubscribedTopics:
    """The topics that a group subscribes to, as far as they are known."""

    __slots__ = ("_names", "_otherwise")

    def __init__(self, names: frozenset[str] | None, *, otherwise: bool) -> None:
        """Set ``otherwise``: whether the group counts as a subscriber of every topic where ``names`` is None."""
        self._names = names
        self._otherwise = otherwise

    @property
    def are_known(self) -> bool:
        return self._names is not None

    def __contains__(self, topic: object) -> bool:
        return self._otherwise if self._names is None else topic in self._names

    def __len__(self) -> int:
        """Return how many topics are known by name."""
        return len(self._names or ())


def read_topics(metadata: Iterable[bytes], limit: int = MAX_TOPICS) -> frozenset[str] | None:
    """Return the topics that subscriptions name, or None if one cannot be read or they name more than ``limit``.

    Version 0 of the subscription is a prefix of every later one, so it is read whatever the version says.
    """
    read = decoder(ConsumerProtocolSubscription, 0)
    topics: set[str] = set()
    seen: list[bytes] = []
    for subscription in metadata:
        if any(subscription.startswith(names, _VERSION_SIZE) for names in seen):
            continue
        limit -= _count(subscription)
        if limit < 0:
            return None
        try:
            message, end = read(subscription, _VERSION_SIZE)
        except DecodeError:
            return None
        topics.update(message.topics)
        if len(seen) < _REMEMBERED:
            seen.append(subscription[_VERSION_SIZE : end - _USER_DATA_SIZE - len(message.user_data or b"")])
    return frozenset(topics)


def _count(subscription: bytes) -> int:
    """Return how many topics a decoder would try to read: what the count says, or as many as there is room for."""
    room = len(subscription) - _VERSION_SIZE - _COUNT.size
    if room < 0:
        return 0
    count: int = _COUNT.unpack_from(subscription, _VERSION_SIZE)[0]
    return min(max(count, 0), room // _SMALLEST_TOPIC)
