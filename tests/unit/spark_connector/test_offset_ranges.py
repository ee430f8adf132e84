"""Cutting ranges of offsets into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark_connector.offset_ranges import OffsetRange, cut, listed

ranges = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 200)), max_size=8).map(
    lambda edges: [OffsetRange("t", n, start, start + size, b"i" * 16) for n, (start, size) in enumerate(edges)]
)


@given(ranges, st.none() | st.integers(1, 30), st.none() | st.integers(1, 50))
def test_tasks_cover_each_offset_once_and_keep_to_the_limits(
    whole: list[OffsetRange], min_partitions: int | None, most: int | None
) -> None:
    tasks = cut(whole, min_partitions=min_partitions, max_records_per_partition=most)
    for each in whole:
        own = [task for task in tasks if task.partition == each.partition]
        offsets = [offset for task in own for offset in range(task.start, task.end)]
        assert offsets == list(range(each.start, each.end))
        assert all((task.topic, task.topic_id) == (each.topic, each.topic_id) for task in own)
    assert all(task.size > 0 for task in tasks)
    assert most is None or all(task.size <= most for task in tasks)
    offsets_in_all = sum(each.size for each in whole)
    assert len(tasks) >= min(min_partitions or 0, offsets_in_all)
    if most is None:
        assert len(tasks) <= max(min_partitions or 0, len(whole))


def test_large_ranges_are_cut_before_small_ones() -> None:
    tasks = cut(
        [OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 10)], min_partitions=5, max_records_per_partition=None
    )
    assert [(task.partition, task.start, task.end) for task in tasks] == [
        (0, 0, 250),
        (0, 250, 500),
        (0, 500, 750),
        (0, 750, 1000),
        (1, 0, 10),
    ]


def test_long_lists_are_shortened() -> None:
    partitions = [OffsetRange("t", n, 0, 1).topic_partition for n in range(12)]
    assert listed(partitions[:2]) == "t-0, t-1"
    assert listed(partitions).endswith("t-9 and 2 more")
