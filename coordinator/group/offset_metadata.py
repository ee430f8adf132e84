"""How much metadata may be committed with offsets: that of one of them, and that of all that a broker keeps.

Committed offsets stay in memory for a week and longer, and their metadata is whatever clients write: nothing at all, as
a rule. So it is bounded by itself (``oncelog.offsets.metadata.max.bytes``), and a commit without any is never refused.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from coordinator.group.offsets import OffsetStore, size_of_metadata
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_SETTING: Final = "oncelog.offsets.metadata.max.bytes"


class Commit(Protocol):
    """An offset to commit, as far as its metadata goes."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def metadata(self) -> str: ...


class OffsetMetadataRules:
    """The two limits, and where the metadata is that counts."""

    def __init__(self, *, longest: int, most_bytes: int, stores: Callable[[], Iterable[OffsetStore]]) -> None:
        """``longest`` is in characters, and ``most_bytes`` is for all of ``stores``."""
        self._longest = longest
        self._most_bytes = most_bytes
        self._stores = stores

    def refused(self, store: OffsetStore, group_id: str, commits: Sequence[Commit]) -> list[TopicPartition]:
        """Return the partitions whose metadata is too long, or for which there is no room any more."""
        with_metadata = [commit for commit in commits if commit.metadata]
        if not with_metadata:
            return []
        refused = []
        room = self._most_bytes - sum(each.metadata_bytes for each in self._stores())
        no_room = 0
        for commit in with_metadata:
            growth = size_of_metadata(commit.metadata) - store.metadata_bytes_of(group_id, commit.partition)
            if len(commit.metadata) > self._longest:
                refused.append(commit.partition)
            elif growth > 0 and growth > room:
                refused.append(commit.partition)
                no_room += 1
            else:
                room -= growth
        if no_room:
            logger.warning(
                "Refused %d offsets with metadata of group %s: %s is %d", no_room, group_id, _SETTING, self._most_bytes
            )
        return refused
