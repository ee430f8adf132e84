"""Fresh histories of all kinds, in each run of ``make test``. ``make simulate`` plays more of them.

``ONCELOG_MIXTURE_BASE`` is the first seed. The Makefile draws one for each run and prints it, and continuous
integration derives it from the commit, so that it can be played again. Without it the seeds begin with 1,000,000.
"""

import os
from collections.abc import Mapping
from itertools import islice
from typing import Final

from tests.simulation.histories import PLAIN, Kind, mixture
from tests.simulation.runner import played

SEEDS: Final = int(os.environ.get("ONCELOG_MIXTURE_SEEDS", "200"))
BASE: Final = int(os.environ.get("ONCELOG_MIXTURE_BASE", "1000000"))
_OF_SHORT_HISTORIES: Final = {"one-broker": 18, "replicas": 8}
"""Histories of a cluster take some twenty times as long, so there is one of each of their kinds in a round."""


def _kinds() -> Mapping[str, Kind]:
    return {name: kind._replace(weight=_OF_SHORT_HISTORIES.get(name, 1)) for name, kind in PLAIN.items()}


def test_fresh_histories_of_the_mixture_hold() -> None:
    # In processes of their own, because pytest gives all tests of one file to one process.
    failed = [one for one in played(islice(mixture(_kinds(), BASE), SEEDS), jobs=os.cpu_count() or 1) if one.failure]
    assert not failed, "\n".join(f"{one.failure}\nreplay it with: make simulate SEED={one.name}" for one in failed)
