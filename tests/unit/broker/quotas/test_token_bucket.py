"""The bucket of tokens, against a model that fills it step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.quotas.token_bucket import TokenBucket
from oncelog.broker.quotas.windowed_rate import Windows

WINDOWS = Windows(5, 1)
STEP = 0.25


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=30))
def test_bucket_holds_what_has_come_in_less_what_was_used(limit: int, uses: list[tuple[int, int]]) -> None:
    bucket, now = TokenBucket(), 7.0
    burst = limit * WINDOWS.number * WINDOWS.seconds
    tokens = float(burst)
    for steps, used in uses:
        for _ in range(steps):
            now += STEP
            tokens = min(burst, tokens + limit * STEP)
        assert bucket.delay(limit, now, WINDOWS) == pytest.approx(max(0.0, -tokens / limit))
        assert bucket.is_full(now, WINDOWS) == (tokens == burst)
        bucket.use(used, limit, now, WINDOWS)
        tokens -= used
        assert bucket.delay(limit, now, WINDOWS) == pytest.approx(max(0.0, -tokens / limit))


def test_bucket_with_a_debt_has_none_after_its_delay() -> None:
    bucket = TokenBucket()
    bucket.use(100, 2, 0.0, WINDOWS)
    assert bucket.delay(2, 0.0, WINDOWS) == 45.0
    assert bucket.delay(2, 45.0, WINDOWS) == 0.0


def test_bucket_of_a_lower_limit_holds_no_more_than_that_allows() -> None:
    bucket = TokenBucket()
    bucket.use(0, 100, 0.0, WINDOWS)
    bucket.use(11, 2, 0.0, WINDOWS)
    assert bucket.delay(2, 0.0, WINDOWS) == 0.5
