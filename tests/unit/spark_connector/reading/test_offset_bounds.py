"""Bounds of reading, by partitions."""

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.offset_bounds import (
    EARLIEST,
    FROM_EARLIEST,
    LATEST,
    BoundInvalid,
    Offsets,
    Timestamp,
    Timestamps,
    offsets_of,
    require_found,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_bounds_become_timestamps_and_known_offsets() -> None:
    assert offsets_of(FROM_EARLIEST, [A, B]).timestamps == {A: EARLIEST, B: EARLIEST}
    assert offsets_of(Timestamp("startingTimestamp", 5, False), [A]).timestamps == {A: 5}
    assert offsets_of(Timestamps("x", {A: 5, B: 6}, False), [A, B]).timestamps == {A: 5, B: 6}
    offsets = offsets_of(Offsets("startingOffsets", {A: 7, B: LATEST}), [A, B])
    assert (offsets.timestamps, offsets.known) == ({B: LATEST}, {A: 7})


def test_bound_that_names_other_partitions_is_refused() -> None:
    with pytest.raises(BoundInvalid, match=r"startingOffsets: has to name every partition that is read.*t-1"):
        offsets_of(Offsets("startingOffsets", {A: 7}), [A, B])
    with pytest.raises(BoundInvalid, match="names t-1, which is not read or does not exist"):
        offsets_of(Timestamps("startingOffsetsByTimestamp", {A: 7, B: 7}, False), [A])


def test_time_after_the_last_record_is_refused_unless_latest_is_allowed() -> None:
    with pytest.raises(BoundInvalid, match=r"startingTimestamp: no record is as young as that in t-0.*Strategy=latest"):
        require_found(Timestamp("startingTimestamp", 5, False), [A])
    require_found(Timestamp("startingTimestamp", 5, True), [A])
    require_found(Timestamp("startingTimestamp", 5, False), [])
