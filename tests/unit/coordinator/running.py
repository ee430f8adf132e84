"""Run a scenario in virtual time."""

import random
from collections.abc import Callable

from tests.simulation.virtual_loop import VirtualLoop


def run(scenario: Callable[[], object]) -> None:
    """Run an async function in virtual time."""
    loop = VirtualLoop(random.Random(0))
    try:
        loop.run_until_complete(scenario())  # type: ignore[arg-type]
    finally:
        loop.close()
