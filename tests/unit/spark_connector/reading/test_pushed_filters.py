"""Filters that narrow ranges: never more than the rows that they keep, never fewer."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark_connector.offset_ranges import OffsetRange
from oncelog.spark_connector.reading.pushed_filters import Comparison, Operator, PushedFilters

RANGES = [OffsetRange("t", partition, 5, 15) for partition in range(4)]
HOLDS: dict[str, Callable[[int, Any], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "in": lambda one, other: one in other,
}
operators: st.SearchStrategy[Operator] = st.sampled_from(["=", "<", "<=", ">", ">="])
comparisons = st.one_of(
    st.builds(Comparison, st.sampled_from(["offset", "partition", "Offset"]), operators, st.integers(-2, 20)),
    st.builds(Comparison, st.just("partition"), st.just("in"), st.lists(st.integers(0, 5)).map(tuple)),
)


@given(st.lists(comparisons, max_size=4))
def test_narrowed_ranges_have_the_offsets_that_the_filters_keep(filters: list[Comparison]) -> None:
    pushed = PushedFilters()
    assert all(pushed.push(each) for each in filters)
    left = {(each.partition, o) for each in pushed.narrowed(RANGES, {}) for o in range(each.start, each.end)}
    wanted = {
        (each.partition, o)
        for each in RANGES
        for o in range(each.start, each.end)
        if all(HOLDS[f.operator](o if f.column.lower() == "offset" else each.partition, f.value) for f in filters)
    }
    assert left == wanted


def test_latest_time_raises_the_start_and_spark_still_filters() -> None:
    pushed = PushedFilters()
    assert not pushed.push(Comparison("timestamp", ">=", datetime(1970, 1, 1, 0, 0, 2, 999, tzinfo=UTC)))
    assert not pushed.push(Comparison("timestamp", ">", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)))
    assert pushed.min_timestamp == 2000
    (narrowed,) = pushed.narrowed(RANGES[:1], {RANGES[0].topic_partition: 9})
    assert (narrowed.start, narrowed.end) == (9, 15)


@given(st.datetimes(max_value=datetime(1969, 12, 31, 23, 59, 59, 999_999)), st.sampled_from(["=", ">", ">="]))
def test_time_before_1970_narrows_nothing(before: datetime, operator: Operator) -> None:
    """-1 is the end of the log there, -2 its beginning, and lower ones are refused or positions, too."""
    pushed = PushedFilters()
    assert not pushed.push(Comparison("timestamp", operator, before.replace(tzinfo=UTC)))
    assert pushed.min_timestamp is None
    assert not pushed.push(Comparison("timestamp", ">=", datetime(1970, 1, 1, tzinfo=UTC)))
    assert pushed.min_timestamp == 0


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison("value", "=", b"x"),
        Comparison("timestamp", "<", datetime(2020, 1, 1, tzinfo=UTC)),
        Comparison("timestamp", ">", datetime(2020, 1, 1)),
        Comparison("offset", "=", True),
        Comparison("offset", "in", (1, 2)),
        Comparison("partition", "in", (1, None)),
    ],
)
def test_filters_that_are_not_supported_are_left_to_spark(comparison: Comparison) -> None:
    pushed = PushedFilters()
    assert not pushed.push(comparison)
    assert pushed.min_timestamp is None
    assert pushed.narrowed(RANGES, {}) == RANGES
