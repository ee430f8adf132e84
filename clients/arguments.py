"""What callers pass, checked at the call. Pure.

A record shares its batch, and a partition or an offset its request, with others. An argument that cannot be written
has to fail where it is passed: in a batch it would corrupt the records behind it, in a request it would end the
producer, or stop the partitions of a consumer. What the caller may change later is copied.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from re import Pattern
from typing import Final

from oncelog.clients.annotations import require_type, wrong_type
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
_LENGTH_OF_PAIR: Final = 2


def checked_bytes(data: object, name: str) -> bytes | None:
    """Return the bytes of a key or value. Raises ``TypeError`` unless it is null or a buffer of single bytes.

    The length of any other buffer counts items or rows, so that its record would be declared too short.
    """
    if data is None or type(data) is bytes:
        return data
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        advice = ": encode it, as with .encode()" if isinstance(data, str) else ""
        raise TypeError(f"{wrong_type(data, 'bytes', name)}{advice}") from None
    if view.ndim != 1 or view.itemsize != 1:
        raise TypeError(
            f"{name} must be a buffer of bytes, not of {view.ndim} dimensions of {view.itemsize} bytes each"
        )
    return view.tobytes()


def checked_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return headers with their values as bytes. Raises ``TypeError`` for names and values of other types."""
    if isinstance(headers, Mapping):
        raise TypeError("headers must be (name, value) pairs, not a mapping: pass list(headers.items())")
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise wrong_type(headers, "a sequence of (name, value) pairs", "headers")
    return [_checked_header(header) for header in headers]


def _checked_header(header: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    if not isinstance(header, Sequence) or isinstance(header, str | bytes) or len(header) != _LENGTH_OF_PAIR:
        raise wrong_type(header, "a (name, value) pair", "a header")
    name, value = header
    if not isinstance(name, str):
        raise wrong_type(name, "str", "the name of a header")
    return name, checked_bytes(value, f"header {name!r}")


def require_record(
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first argument that no record can have."""
    checked_topic(topic)
    checked_bytes(value, "the value")
    checked_bytes(key, "the key")
    checked_headers(headers)
    if partition is not None:
        checked_partition(partition)
    if timestamp_ms is not None:
        checked_timestamp(timestamp_ms)


def wrong_argument(
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    partition: int | None,
    timestamp_ms: int | None,
) -> Exception | None:
    """Return the error for the first argument that no record can have, None if a record can have all of them."""
    try:
        require_record(topic, value, key, headers, partition, timestamp_ms)
    except (TypeError, ValueError) as error:
        return error
    return None


def checked_timestamp(timestamp_ms: int) -> int:
    """Return a timestamp in milliseconds. Raises ``ValueError`` below 0 and above 63 bits."""
    return _within(timestamp_ms, "timestamp_ms", 0, _MAX_INT64)


def checked_timeout(timeout_ms: int, name: str) -> int:
    """Return a time in milliseconds. Raises ``ValueError`` below 1 and above 31 bits."""
    return _within(timeout_ms, name, 1, MAX_INT32)


def checked_size(size: int, name: str, *, least: int = 1, most: int = _MAX_INT64) -> int:
    """Return a number of bytes or records. Raises ``ValueError`` below ``least`` and above ``most``."""
    return _within(size, name, least, most)


def checked_topic(topic: str) -> str:
    """Return a topic's name. Raises ``ValueError`` if no request can hold it; brokers have stricter rules."""
    if topic == "":
        raise ValueError("topic must not be empty")
    return checked_text(topic, "topic")


def checked_partition(partition: int) -> int:
    """Return a partition's index. Raises ``ValueError`` below 0 and above 31 bits."""
    return _within(partition, "partition", 0, MAX_INT32)


def checked_subscription(topics: Iterable[str] | Pattern[str]) -> list[str] | Pattern[str]:
    """Return topics that a request can name, or a pattern. Raises ``TypeError``, and ``ValueError`` for none."""
    if isinstance(topics, Pattern):
        if not isinstance(topics.pattern, str):
            raise wrong_type(topics.pattern, "str", "the pattern of a subscription")
        return topics
    require_type(topics, Iterable[str], "topics")
    named = [checked_topic(topic) for topic in topics]
    if not named:
        raise ValueError("topics must not be empty: to end a subscription, call unsubscribe()")
    return named


def checked_topic_partition(topic_partition: TopicPartition) -> TopicPartition:
    """Return a partition that a request can name. Raises ``ValueError`` and ``TypeError``."""
    if not isinstance(topic_partition, tuple) or len(topic_partition) != _LENGTH_OF_PAIR:
        raise wrong_type(topic_partition, "a TopicPartition", "a partition")
    topic, partition = topic_partition
    return TopicPartition(checked_topic(topic), checked_partition(partition))


def checked_topic_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions that a request can name. Raises ``ValueError`` and ``TypeError``."""
    if isinstance(partitions, TopicPartition | str | bytes) or not isinstance(partitions, Iterable):
        expected = "a collection of TopicPartition"
        advice = ": put it into a list" if isinstance(partitions, TopicPartition) else ""
        raise TypeError(f"{wrong_type(partitions, expected, 'partitions')}{advice}")
    return [checked_topic_partition(topic_partition) for topic_partition in partitions]


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    _require_mapping(offsets, "OffsetAndMetadata", "offsets")
    return {checked_topic_partition(tp): checked_offset(committed, f"{tp}") for tp, committed in offsets.items()}


def checked_target_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the times to look for, in milliseconds since the epoch. Raises ``ValueError`` and ``TypeError``."""
    _require_mapping(times, "timestamps", "timestamps")
    return {
        checked_topic_partition(tp): _within(time_ms, "timestamp", _MIN_INT64, _MAX_INT64)
        for tp, time_ms in times.items()
    }


def _require_mapping(given: object, values: str, name: str) -> None:
    if not isinstance(given, Mapping):
        raise wrong_type(given, f"a mapping of TopicPartition to {values}", name)


def checked_offset(committed: OffsetAndMetadata, of: str = "the position") -> OffsetAndMetadata:
    """Return an offset that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    if not isinstance(committed, OffsetAndMetadata):
        advice = ": pass OffsetAndMetadata(offset)" if isinstance(committed, int) else ""
        raise TypeError(f"{wrong_type(committed, 'OffsetAndMetadata', f'the offset of {of}')}{advice}")
    return OffsetAndMetadata(
        _within(committed.offset, "offset", 0, _MAX_INT64),
        _within(committed.leader_epoch, "leader_epoch", _NO_LEADER_EPOCH, MAX_INT32),
        checked_text(committed.metadata, "metadata"),
    )


def checked_group(group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Return a group's identity that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    require_type(group, ConsumerGroupMetadata, "group")
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
        raise wrong_type(number, "int", name) from None
    if not least <= checked <= most:
        raise ValueError(f"{name} {checked} is not between {least} and {most}")
    return checked


def checked_text(text: str, name: str) -> str:
    """Return a text that a request can hold. Raises ``ValueError`` and ``TypeError``."""
    if not isinstance(text, str):
        raise wrong_type(text, "str", name)
    if len(text.encode()) > MAX_STRING_BYTES:
        raise ValueError(f"{name} is longer than {MAX_STRING_BYTES} bytes")
    return text
