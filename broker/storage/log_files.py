"""The names of what is in a partition's directory. An offset is written with 20 digits, so names sort like offsets."""

from typing import Final

from oncelog.protocol.topic_partition import TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"

INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"

_MAX_NAME: Final = 255


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020}{suffix}"


def offset_file(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset_file_name(offset, suffix)}"


def offset_of(name: str) -> int | None:
    """Return the offset in a file's name; None if the name does not begin with one."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isdecimal() else None


def offsets_with_suffix(names: list[str], suffix: str) -> list[int]:
    """Return the offsets in the names with a suffix, ascending; names without an offset are left out."""
    offsets = [offset_of(name) for name in names if name.endswith(suffix)]
    return sorted(offset for offset in offsets if offset is not None)


def directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def delete_directory_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Return the name of a deleted partition's directory, at most 255 characters."""
    return _unique_name(topic_partition, unique_id, DELETE_DIRECTORY_SUFFIX)


def stray_directory_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Return the name of a directory whose replica does not belong here, at most 255 characters."""
    return _unique_name(topic_partition, unique_id, STRAY_DIRECTORY_SUFFIX)


def _unique_name(topic_partition: TopicPartition, unique_id: str, suffix: str) -> str:
    ending = f"-{topic_partition.partition}.{unique_id}{suffix}"
    return topic_partition.topic[: _MAX_NAME - len(ending)] + ending


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition that a directory belongs to; None if it is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdecimal():
        return None
    return TopicPartition(topic, int(partition))
