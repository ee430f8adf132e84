"""``python -m tests.rolling COMMIT``: rounds of upgrades and ways back; exits with 1 on any violation."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.former_code import worktree
from tests.rolling.journey import Journey
from tests.rolling.loaded_cluster import LegResult
from tests.rolling.rounds import Say, add_options, play_rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rolling", description=__doc__)
    parser.add_argument("commit", help="the former version")
    add_options(parser)
    arguments = parser.parse_args()
    with worktree(arguments.commit) as former:

        async def play(directory: Path, clients: Sequence[str], say: Say, kill: bool) -> list[LegResult]:
            return await Journey(directory, former, clients, say, kill=kill).play()

        play_rounds(arguments, f"from {arguments.commit}", play)


if __name__ == "__main__":
    main()
