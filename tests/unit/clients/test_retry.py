"""Pauses grow, stay within bounds, and end when an operation's time is up."""

import asyncio
from random import Random

import pytest

from oncelog.clients.retry import Backoff, Retry
from tests.unit.broker.virtual_time import in_virtual_time


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(rng=Random(1), first_seconds=0.1, longest_seconds=1.0, jitter=0.0)
    assert [backoff.pause_seconds(attempt) for attempt in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_spreads_pauses_to_both_sides() -> None:
    backoff = Backoff(rng=Random(1), first_seconds=1.0, longest_seconds=1.0, jitter=0.2)
    pauses = [backoff.pause_seconds(0) for _ in range(200)]
    assert 0.8 <= min(pauses) < 0.85
    assert 1.15 < max(pauses) <= 1.2


def test_pause_of_the_thousandth_attempt_does_not_overflow() -> None:
    assert Backoff(rng=Random(1), jitter=0.0).pause_seconds(1000) == 1.0


@in_virtual_time
async def test_pause_beyond_the_deadline_is_refused() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    retry = Retry(Backoff(rng=Random(1), first_seconds=1.0, longest_seconds=1.0, jitter=0.0), 3.5)
    assert [await retry.pause() for _ in range(4)] == [True, True, True, False]
    assert loop.time() - started == pytest.approx(3.0)
    assert retry.remaining_seconds == pytest.approx(0.5)
