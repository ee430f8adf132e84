"""Bounds of reading, turned into questions about partitions."""

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
    not_found,
    questions,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_questions() -> None:
    assert questions(FROM_EARLIEST, [A, B]).asked == {A: EARLIEST, B: EARLIEST}
    assert questions(Timestamp("startingTimestamp", 5, False), [A]).asked == {A: 5}
    assert questions(Timestamps("x", {A: 5, B: 6}, False), [A, B]).asked == {A: 5, B: 6}
    offsets = questions(Offsets("startingOffsets", {A: 7, B: LATEST}), [A, B])
    assert (offsets.asked, offsets.known) == ({B: LATEST}, {A: 7})


def test_every_partition_has_to_be_named_and_no_other() -> None:
    with pytest.raises(BoundInvalid, match=r"startingOffsets: has to name every partition that is read.*t-1"):
        questions(Offsets("startingOffsets", {A: 7}), [A, B])
    with pytest.raises(BoundInvalid, match="names t-1, which is not read or does not exist"):
        questions(Timestamps("startingOffsetsByTimestamp", {A: 7, B: 7}, False), [A])


def test_no_record_is_that_young() -> None:
    with pytest.raises(BoundInvalid, match=r"startingTimestamp: no record is as young as that in t-0.*Strategy=latest"):
        not_found(Timestamp("startingTimestamp", 5, False), [A])
    not_found(Timestamp("startingTimestamp", 5, True), [A])
    not_found(Timestamp("startingTimestamp", 5, False), [])
