"""Fresh histories of all kinds, in each run of ``make test``. ``make simulate`` plays more of them.

``ONCELOG_MIXTURE_BASE`` is the first seed. The Makefile draws one for each run and prints it, and continuous
integration derives it from the commit, so that it can be played again. Without it the seeds begin with 1,000,000.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import pytest

from tests.simulation.histories import KINDS, Hangs, Kind, limited_to, mixture
from tests.simulation.runner import played
from tests.simulation.virtual_loop import VirtualLoop

SEEDS: Final = int(os.environ.get("ONCELOG_MIXTURE_SEEDS", "200"))
BASE: Final = int(os.environ.get("ONCELOG_MIXTURE_BASE", "1000000"))
_OF_SHORT_HISTORIES: Final = {"one-broker": 60, "replicas": 24, "swarm-one-broker": 20, "swarm-replicas": 8}
"""Histories of a cluster take some twenty times as long, so there is one of each of their kinds in a round."""


def _kinds() -> Mapping[str, Kind]:
    return {name: kind._replace(weight=_OF_SHORT_HISTORIES.get(name, 1)) for name, kind in KINDS.items()}


def test_fresh_histories_of_the_mixture_hold() -> None:
    # In processes of their own, because pytest gives all tests of one file to one process.
    failed = [one for one in played(islice(mixture(_kinds(), BASE), SEEDS), jobs=os.cpu_count() or 1) if one.failure]
    assert not failed, "\n".join(f"{one.failure}\nreplay it with: make simulate SEED={one.name}" for one in failed)


def test_fresh_histories_are_of_every_kind() -> None:
    assert {name.kind for name in islice(mixture(_kinds(), BASE), SEEDS)} == set(KINDS)


def test_third_of_the_default_mixture_has_buggify_points() -> None:
    one_round = list(islice(mixture(KINDS, 0), sum(kind.weight for kind in KINDS.values())))
    assert {name.kind for name in one_round} == set(KINDS)
    assert 0.25 < sum(KINDS[name.kind].swarm for name in one_round) / len(one_round) < 0.4


async def _compute() -> None:
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


def _spin() -> None:
    while True:
        sum(range(10_000))


def _compute_in_task(loop: VirtualLoop) -> None:
    loop.run_until_complete(_compute())


def _compute_in_callback(loop: VirtualLoop) -> None:
    loop.call_soon(_spin)
    loop.run_forever()


@pytest.mark.parametrize("compute", [_compute_in_task, _compute_in_callback])
def test_history_that_computes_without_end_is_given_up(compute: Callable[[VirtualLoop], None]) -> None:
    loop = VirtualLoop(random.Random(1))
    try:
        with pytest.raises(Hangs), limited_to(0.1):
            compute(loop)
    finally:
        loop.close()
