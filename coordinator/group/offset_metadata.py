"""The bounds on the number of committed offsets, and on their metadata.

Committed offsets stay in memory for a week and longer, and any client that may commit can name any group. So
their number is bounded (``oncelog.offsets.max.count``). Their metadata is whatever clients write, nothing at all as a
rule, and is bounded by itself (``oncelog.offsets.metadata.max.bytes``). A group that has an offset of a partition can
commit for that partition again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from oncelog.coordinator.group.offsets import OffsetStore, size_of_metadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

GROUP_WEIGHT: Final = 6
"""A group takes as much memory as so many offsets."""
_BYTES_SETTING: Final = "oncelog.offsets.metadata.max.bytes"
_COUNT_SETTING: Final = "oncelog.offsets.max.count"


class Commit(Protocol):
    """An offset to commit, as far as its metadata goes."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def metadata(self) -> str: ...


class OffsetMetadataRules:
    """The limits, and where the offsets are that count."""

    def __init__(
        self, *, longest: int, most_bytes: int, most_offsets: int, stores: Callable[[], Iterable[OffsetStore]]
    ) -> None:
        """Set the limits: ``longest`` in characters; ``most_bytes`` and ``most_offsets`` for all of ``stores``."""
        self._longest = longest
        self._most_offsets = most_offsets
        self._most_bytes = most_bytes
        self._stores = stores

    def refused(self, store: OffsetStore, group_id: str, commits: Sequence[Commit]) -> dict[TopicPartition, ErrorCode]:
        """Return the partitions that are refused, with their errors: too much metadata, or no room any more."""
        errors = self._beyond_count(store, group_id, commits)
        with_metadata = [commit for commit in commits if commit.metadata and commit.partition not in errors]
        if not with_metadata:
            return errors
        room = self._most_bytes - sum(each.metadata_bytes for each in self._stores())
        no_room = 0
        for commit in with_metadata:
            growth = size_of_metadata(commit.metadata) - store.metadata_bytes_of(group_id, commit.partition)
            if len(commit.metadata) > self._longest:
                errors[commit.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif growth > 0 and growth > room:
                errors[commit.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                no_room += 1
            else:
                room -= growth
        if no_room:
            _log_refusal(no_room, group_id, _BYTES_SETTING, self._most_bytes)
        return errors

    def _beyond_count(
        self, store: OffsetStore, group_id: str, commits: Sequence[Commit]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the partitions beyond the count; one that has an offset can always have another."""
        room = self._most_offsets - sum(each.count + GROUP_WEIGHT * each.group_count for each in self._stores())
        if len(commits) <= room:
            return {}
        known = store.committed(group_id)
        added = [commit.partition for commit in commits if commit.partition not in known]
        refused = added[max(room, 0) :]
        if refused:
            _log_refusal(len(refused), group_id, _COUNT_SETTING, self._most_offsets)
        return dict.fromkeys(refused, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)


def _log_refusal(offsets: int, group_id: str, setting: str, limit: int) -> None:
    logger.warning("Refused %d offsets of group %s: %s is %d", offsets, group_id, setting, limit)
