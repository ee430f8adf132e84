"""The delay of a timer, measured in virtual time."""

import asyncio

from oncelog.broker.metrics.loop_lag import BOUNDS, LoopLag
from tests.unit.broker.virtual_time import in_virtual_time


@in_virtual_time
async def test_loop_that_is_free_is_never_late() -> None:
    lag = LoopLag()
    lag.start()
    await asyncio.sleep(10.25)
    lag.stop()
    assert lag.counts == [20] + [0] * len(BOUNDS)
    assert lag.total_seconds < 0.001
    await asyncio.sleep(10)
    assert sum(lag.counts) == 20


def test_delays_fall_into_the_bucket_whose_bound_they_do_not_exceed() -> None:
    lag = LoopLag()
    for seconds in (0.0, 0.001, 0.0011, 1.0, 2.5, 2.6, 100.0):
        lag.record(seconds)
    counted = dict(zip([*BOUNDS, None], lag.counts, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {0.001: 2, 0.0025: 1, 1.0: 1, 2.5: 1, None: 2}
    assert lag.total_seconds == 0.0 + 0.001 + 0.0011 + 1.0 + 2.5 + 2.6 + 100.0


def test_busy_loop_is_late() -> None:
    """On a real loop, kept busy for as long as its timer has to wait and then some."""

    async def scenario() -> LoopLag:
        lag = LoopLag()
        lag.start()
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.6
        while loop.time() < until:
            pass
        while not sum(lag.counts):  # noqa: ASYNC110
            await asyncio.sleep(0)
        lag.stop()
        return lag

    lag = asyncio.run(scenario())
    assert 0.09 < lag.total_seconds < 300
