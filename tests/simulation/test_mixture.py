"""A mixture of all kinds of histories, of fixed seeds. ``make simulate`` plays fresh ones."""

import os
from itertools import islice
from typing import Final

import pytest

from tests.simulation.histories import PLAIN, mixture, play

SEEDS: Final = int(os.environ.get("ONCELOG_MIXTURE_SEEDS", "40"))
BASE: Final = int(os.environ.get("ONCELOG_MIXTURE_BASE", "1000000"))
CHUNKS: Final = 2


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_histories_of_the_mixture_hold(chunk: int) -> None:
    for name in islice(mixture(PLAIN, BASE + 1_000 * chunk), SEEDS // CHUNKS):
        one = play(name)
        assert not one.failure, f"{one.failure}\nreplay it with: make simulate SEED={name}"
