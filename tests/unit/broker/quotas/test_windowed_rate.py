"""Rates over windows, against a model that keeps every use, and against the formula of Kafka."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.quotas.windowed_rate import WindowedRate, Windows

DEFAULT = Windows()
uses = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=40)
"""(milliseconds since the one before, what is used)"""
windows = st.builds(Windows, st.integers(1, 12), st.integers(1, 3))


class EveryUse:
    """Keeps all uses, and groups them anew for each look."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.uses: list[tuple[float, float]] = []

    def kept(self, now: float) -> list[list[tuple[float, float]]]:
        """The windows that are not obsolete, each with its uses."""
        grouped: list[list[tuple[float, float]]] = []
        for at, used in self.uses:
            is_new = not grouped or at - grouped[-1][0][0] >= self.windows.seconds
            if is_new:
                grouped.append([])
            grouped[-1].append((at, used))
        return [each for each in grouped if now - each[0][0] < self.windows.number * self.windows.seconds]

    def rate(self, now: float) -> float:
        kept = self.kept(now)
        elapsed = now - kept[0][0][0] if kept else 0.0
        least = (self.windows.number - 1) * self.windows.seconds
        whole = math.floor(elapsed / self.windows.seconds)
        seconds = elapsed if whole >= self.windows.number - 1 else elapsed + least - whole * self.windows.seconds
        return sum(used for window in kept for _, used in window) / max(seconds, 0.001)


@given(windows, uses, st.integers(0, 20_000))
def test_rate_is_that_of_all_uses_in_windows_that_count(
    windows: Windows, uses: list[tuple[int, int]], later_ms: int
) -> None:
    rate, model = WindowedRate(), EveryUse(windows)
    now_ms = 0
    for pause_ms, used in uses:
        now_ms += pause_ms
        rate.record(used, now_ms / 1000, windows)
        model.uses.append((now_ms / 1000, used))
        assert rate.rate(now_ms / 1000, windows) == pytest.approx(model.rate(now_ms / 1000))
    now = (now_ms + later_ms) / 1000
    assert rate.rate(now, windows) == pytest.approx(model.rate(now))


@given(st.integers(1, 1_000), uses)
def test_client_that_waits_for_its_delays_uses_a_bounded_amount(limit: int, uses: list[tuple[int, int]]) -> None:
    """A burst counts for the windows only, so twice the limit is possible in the long run, as in Kafka."""
    rate, now, total, largest = WindowedRate(), 0.0, 0, 0
    for pause_ms, used in uses:
        now += pause_ms / 1000
        rate.record(used, now, DEFAULT)
        total += used
        largest = max(largest, used)
        assert total <= limit * (2 * now + DEFAULT.total_seconds) + largest + 1e-6
        now += rate.delay(limit, now, DEFAULT)


@pytest.mark.parametrize(
    ("used", "limit", "delay"),
    [(10_000, 1_000, 0.0), (10_001, 1_000, 0.001), (30_000, 1_000, 20.0), (1_000_000, 1_000, 990.0)],
)
def test_delay_of_a_first_use_is_that_of_kafka(used: int, limit: int, delay: float) -> None:
    rate = WindowedRate()
    rate.record(used, 100.0, DEFAULT)
    assert rate.delay(limit, 100.0, DEFAULT) == pytest.approx(delay)


def test_use_that_is_taken_back_leaves_the_rate_as_it_was() -> None:
    rate = WindowedRate()
    rate.record(500, 1.0, DEFAULT)
    before = rate.rate(2.5, DEFAULT)
    rate.record(700, 2.5, DEFAULT)
    rate.record(-700, 2.5, DEFAULT)
    assert rate.rate(2.5, DEFAULT) == before
    assert not rate.is_unused(2.5, DEFAULT)


def test_rate_is_unused_once_all_windows_are_obsolete() -> None:
    rate = WindowedRate()
    assert rate.is_unused(0.0, DEFAULT)
    rate.record(500, 1.0, DEFAULT)
    assert not rate.is_unused(11.9, DEFAULT)
    assert rate.is_unused(12.0, DEFAULT)
