"""``python -m tests.rolling.security``: a cluster is secured while it runs; exits with 1 on any violation."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.rolling.loaded_cluster import LegResult
from tests.rolling.rounds import Say, add_options, play_rounds
from tests.rolling.security_journey import SecurityJourney


async def _play(directory: Path, clients: Sequence[str], say: Say, kill: bool) -> list[LegResult]:
    return await SecurityJourney(directory, clients, say, kill=kill, rng=SystemRandom()).play()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rolling.security", description=__doc__)
    add_options(parser)
    play_rounds(parser.parse_args(), "of securing a cluster and going back", _play)


if __name__ == "__main__":
    main()
