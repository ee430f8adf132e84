"""What callers pass, checked at the call. Pure.

A record shares its batch, and a partition or an offset its request, with others. An argument that cannot be written
has to fail where it is passed: in a batch it would corrupt the records behind it, in a request it would end the
producer, or stop the partitions of a consumer. What the caller may change later is copied.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import index
from typing import Final

from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition

MAX_INT32: Final = 2**31 - 1
MAX_STRING_BYTES: Final = 2**15 - 1
"""Of a string in a request, in UTF-8."""
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)
_NO_LEADER_EPOCH: Final = -1
_NO_GENERATION: Final = -1


def checked_bytes(data: object, name: str) -> bytes | None:
    """Return the bytes of a key or value. Raises ``TypeError`` unless it is null or a buffer of single bytes.

    The length of any other buffer counts items or rows, so that its record would be declared too short.
    """
    if data is None or type(data) is bytes:
        return data
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be bytes, not {type(data).__name__}") from None
    if view.ndim != 1 or view.itemsize != 1:
        raise TypeError(
            f"{name} must be a buffer of bytes, not of {view.ndim} dimensions of {view.itemsize} bytes each"
        )
    return view.tobytes()


def checked_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return headers with their values as bytes. Raises ``TypeError`` for names and values of other types."""
    checked = [(name, checked_bytes(value, f"header {name!r}")) for name, value in headers]
    for name, _ in checked:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
    return checked


def checked_timestamp(timestamp_ms: int) -> int:
    """Return a timestamp in milliseconds. Raises ``ValueError`` below 0 and above 63 bits."""
    return _within(timestamp_ms, "timestamp_ms", 0, _MAX_INT64)


def checked_timeout(timeout_ms: int, name: str) -> int:
    """Return a time in milliseconds. Raises ``ValueError`` below 1 and above 31 bits."""
    return _within(timeout_ms, name, 1, MAX_INT32)


def checked_topic(topic: str) -> str:
    """Return a topic's name. Raises ``ValueError`` if no request can hold it; brokers have stricter rules."""
    return checked_text(topic, "topic")


def checked_partition(partition: int) -> int:
    """Return a partition's index. Raises ``ValueError`` below 0 and above 31 bits."""
    return _within(partition, "partition", 0, MAX_INT32)


def checked_topic_partition(topic_partition: TopicPartition) -> TopicPartition:
    """Return a partition that a request can name. Raises ``ValueError`` and ``TypeError``."""
    topic, partition = topic_partition
    return TopicPartition(checked_topic(topic), checked_partition(partition))


def checked_topic_partitions(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return partitions that a request can name. Raises ``ValueError`` and ``TypeError``."""
    return [checked_topic_partition(topic_partition) for topic_partition in partitions]


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    return {checked_topic_partition(tp): checked_offset(committed) for tp, committed in offsets.items()}


def checked_target_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the times to look for, in milliseconds since the epoch. Raises ``ValueError`` and ``TypeError``."""
    return {
        checked_topic_partition(tp): _within(time_ms, "timestamp", _MIN_INT64, _MAX_INT64)
        for tp, time_ms in times.items()
    }


def checked_offset(committed: OffsetAndMetadata) -> OffsetAndMetadata:
    """Return an offset that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    return OffsetAndMetadata(
        _within(committed.offset, "offset", 0, _MAX_INT64),
        _within(committed.leader_epoch, "leader_epoch", _NO_LEADER_EPOCH, MAX_INT32),
        checked_text(committed.metadata, "metadata"),
    )


def checked_group(group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Return a group's identity that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    if not group.group_id:
        raise ValueError("group_id must not be empty")
    if group.generation_id > 0 and not group.member_id:
        raise ValueError(f"a member of generation {group.generation_id} must have a member_id")
    instance = group.group_instance_id
    return ConsumerGroupMetadata(
        group_id=checked_text(group.group_id, "group_id"),
        generation_id=_within(group.generation_id, "generation_id", _NO_GENERATION, MAX_INT32),
        member_id=checked_text(group.member_id, "member_id"),
        group_instance_id=None if instance is None else checked_text(instance, "group_instance_id"),
    )


def _within(number: int, name: str, least: int, most: int) -> int:
    try:
        checked = index(number)
    except TypeError:
        raise TypeError(f"{name} must be int, not {type(number).__name__}") from None
    if not least <= checked <= most:
        raise ValueError(f"{name} {checked} is not between {least} and {most}")
    return checked


def checked_text(text: str, name: str) -> str:
    """Return a text that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    if len(text.encode()) > MAX_STRING_BYTES:
        raise ValueError(f"{name} is longer than {MAX_STRING_BYTES} bytes")
    return text
