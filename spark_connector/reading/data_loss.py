"""Records that were deleted before they were read: how the driver detects and reports it. Pure.

A task detects records that retention deleted: the log begins after the start of its range. The driver detects what
happened to whole topics: deleted, deleted and created again (with another id), truncated (an unclean election). With
``failOnDataLoss`` each of them fails the query; without it, the loss is logged, and reading goes on with the records
that are left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import NO_TOPIC_ID, listed

_ADVICE: Final = (
    "To go on with the records that are left, set failOnDataLoss=false; this query then does not read the lost ones"
)


class DataLoss(Exception):
    """Records are gone before they were read, and ``failOnDataLoss`` is true."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The differences between the last offset of a stream and the cluster."""

    deleted: frozenset[TopicPartition]
    recreated: frozenset[str]
    cut_back: frozenset[TopicPartition]

    def __bool__(self) -> bool:
        return bool(self.deleted or self.recreated or self.cut_back)

    def __str__(self) -> str:
        parts = []
        if self.recreated:
            parts.append(f"topics were deleted and created again: {', '.join(sorted(self.recreated))}")
        if self.deleted:
            parts.append(f"partitions do not exist any more: {listed(self.deleted)}")
        if self.cut_back:
            parts.append(f"the log ends before what was read already: {listed(self.cut_back)}")
        return "; ".join(parts)


def find_losses(
    end: Mapping[TopicPartition, int],
    known_ids: Mapping[str, bytes],
    found_ids: Mapping[TopicPartition, bytes],
    high_watermarks: Mapping[TopicPartition, int],
) -> Losses:
    """Compare a stream's offset with the partitions that exist (with their topics' ids) and the ends of their logs."""
    recreated = frozenset(
        tp.topic
        for tp, topic_id in found_ids.items()
        if NO_TOPIC_ID not in (topic_id, known := known_ids.get(tp.topic, NO_TOPIC_ID)) and topic_id != known
    )
    return Losses(
        deleted=frozenset(end.keys() - found_ids.keys()),
        recreated=recreated,
        cut_back=frozenset(
            tp for tp, offset in end.items() if tp.topic not in recreated and high_watermarks.get(tp, offset) < offset
        ),
    )


def data_loss(what: object) -> DataLoss:
    """Return the error for a loss, with the remedy."""
    return DataLoss(f"{what}. {_ADVICE}")
