"""How much one micro-batch reads."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.admission import TriggerDelay, limited_end, new_offsets

A, B, C = (TopicPartition("t", n) for n in range(3))
offsets = st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))


@given(offsets, offsets, st.integers(1, 2000))
def test_limited_ends_advance_and_never_pass_the_log_end(
    starts: tuple[int, int, int], lags: tuple[int, int, int], limit: int
) -> None:
    start = dict(zip((A, B, C), starts, strict=True))
    latest = {tp: offset + lag for (tp, offset), lag in zip(start.items(), lags, strict=True)}
    end = limited_end(start, latest, limit)
    assert all(start[tp] <= end[tp] <= latest[tp] for tp in start)
    assert all(end[tp] > start[tp] for tp in start if latest[tp] > start[tp])
    assert sum(end[tp] - start[tp] for tp in start) <= limit + len(start)
    if sum(lags) <= limit:
        assert end == latest


def test_limited_ends_are_in_proportion_to_the_lag_of_each_partition() -> None:
    assert limited_end({A: 0, B: 100, C: 5}, {A: 900, B: 190, C: 15}, 100) == {A: 90, B: 109, C: 6}


def test_log_that_ends_before_the_start_is_not_read_backwards() -> None:
    assert limited_end({A: 10}, {A: 4}, 100) == {A: 10}
    assert new_offsets({A: 10, B: 0}, {A: 4, B: 3}) == 3


def test_batches_are_held_back_until_they_are_large_or_old_enough() -> None:
    delay = TriggerDelay(10, 60.0)
    assert not delay.holds_back(1, 1000.0), "the first one is not"
    assert delay.holds_back(9, 1001.0)
    assert not delay.holds_back(10, 1002.0)
    assert delay.holds_back(9, 1061.0)
    assert not delay.holds_back(9, 1062.0)
