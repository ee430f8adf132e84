"""Histories that were never played before: every run draws its seeds anew. A failure says how to replay it."""

import os
import random
from itertools import islice
from typing import Final

import pytest

from tests.simulation.histories import KINDS, mixture, play

SEEDS: Final = int(os.environ.get("ONCELOG_FRESH_SEEDS", "200"))
CHUNKS: Final = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fresh_histories_hold(chunk: int) -> None:
    base = random.SystemRandom().randrange(10**9)
    for name in islice(mixture(KINDS, base), SEEDS // CHUNKS):
        one = play(name)
        assert not one.failure, f"{one.failure}\nreplay it with: make simulate SEED={name}"
