"""``python -m tests.hostile``: attack a live broker within bounds, and print what it did to the broker and its clients.

Three brokers are attacked, one after the other. The first has settings under which the fate of every malformed frame is
known (``tests.scenarios.malformed_frames``). The second has its defaults, and is attacked with what is small to send
and much to work on. The third has TLS, authentication and ten thousand access control lists, and clients that abuse
these (``tests.hostile.abuse``), with an ordinary client beside them whose response times are printed. The exit code is
1 if the loop paused for longer than 250 ms, if the broker grew by more than 512 MiB, logged a traceback or a control
character, did not restart, or if an ordinary client lost, doubled or waited in vain.
"""

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.hostile import abuse
from tests.hostile.abuse_stage import AbuseStage
from tests.hostile.attacks import ATTACKS, FULL, SMALL, Attacker, Scale, Tally
from tests.hostile.frames import FRAME_SETTINGS, flood, prepare_for_frames
from tests.hostile.stage import Measured, Stage

MOST_PAUSE_MS: Final = 250.0
MOST_GROWTH_MIB: Final = 512
FRAMES: Final = 75_000
_FRAMES_A_ROUND: Final = 15_000


def _attack(
    name: str, run: Callable[[Attacker], Awaitable[None]], port: int, scale: Scale, seed: int
) -> Callable[[Tally], Awaitable[None]]:
    async def attack(tally: Tally) -> None:
        attacker = Attacker(port, scale, seed)
        attacker.tally = tally
        await run(attacker)

    return attack


def attack_frames(stage: Stage, frames: int, seed: int, report: Callable[[Measured], None]) -> None:
    """Malformed frames of every kind, API and version."""
    topic_ids = prepare_for_frames(stage.broker.port)
    for number, first in enumerate(range(0, frames, _FRAMES_A_ROUND)):
        count = min(_FRAMES_A_ROUND, frames - first)
        attack = partial(flood, stage, seed + number, topic_ids, count)
        report(stage.measure(f"malformed frames, seed {seed + number}", attack))


def attack_defaults(
    stage: Stage, scale: Scale, seed: int, report: Callable[[Measured], None], wanted: str = ""
) -> None:
    """Everything in ``ATTACKS`` whose name has ``wanted`` in it."""
    report(stage.measure("topics", _attack("topics", Attacker.prepare, stage.broker.port, scale, seed)))
    for name, run in ATTACKS:
        if wanted in name:
            report(stage.measure(name, _attack(name, run, stage.broker.port, scale, seed)))


def print_row(measured: Measured) -> None:
    print(
        f"{measured.name:38.38} {measured.inputs:8d} {measured.pause_ms:9.0f} {measured.overrun_ms:9.0f} "
        f"{measured.growth_mib:7d} {measured.harms:5d}  {measured.fates}",
        flush=True,
    )


def print_bystander(stage: Stage) -> None:
    figures = stage.bystander
    if figures:
        print("ordinary clients: " + ", ".join(f"{name} {value}" for name, value in figures.items()))


def attack_secured(directory: Path, *, small: bool, wanted: str) -> list[str]:
    """What ``tests.hostile.abuse`` lists, if it has ``wanted`` in its name; returns what is beyond the bounds."""
    columns = ("inputs", "quiet p99", "p50", "p99", "ratio", "longest", "pause", "machine", "MiB")
    print(f"{'abuse (ms)':32} " + " ".join(f"{column:>9}" for column in columns) + "  what became of it")
    with AbuseStage(directory, abuse.SMALL if small else abuse.FULL) as stage:
        measured = stage.measure_all(wanted)
        beyond = list(stage.problems)
    for each in measured:
        times = (each.quiet_p99, each.p50, each.p99, each.ratio, each.longest, each.pause, each.overrun)
        figures = " ".join(f"{value:9.1f}" for value in times)
        print(f"{each.name:32.32} {each.inputs:9d} {figures} {each.growth_mib:9d}  {each.fate}")
        if each.pause > MOST_PAUSE_MS:
            beyond.append(f"{each.name}: a pause of {each.pause:.0f} ms")
        if each.growth_mib > MOST_GROWTH_MIB:
            beyond.append(f"{each.name}: {each.growth_mib} MiB above the start")
    return beyond


def problems_of(stage: Stage) -> list[str]:
    """What is beyond the bounds, beside what the stage itself found."""
    beyond = list(stage.problems)
    for measured in stage.measured:
        if measured.pause_ms > MOST_PAUSE_MS:
            beyond.append(f"{measured.name}: a pause of {measured.pause_ms:.0f} ms")
        if measured.growth_mib > MOST_GROWTH_MIB:
            beyond.append(f"{measured.name}: {measured.growth_mib} MiB above the start")
    return beyond


def summary(measured: Sequence[Measured]) -> str:
    """The greatest figures of all attacks, and what they may be."""
    pause = max((attack.pause_ms for attack in measured), default=0.0)
    growth = max((attack.growth_mib for attack in measured), default=0)
    return (
        f"longest pause {pause:.0f} ms (limit: {MOST_PAUSE_MS:.0f} ms)\n"
        f"most memory above the start {growth} MiB (limit: {MOST_GROWTH_MIB} MiB)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--frames", type=int, default=FRAMES, help="malformed frames to send; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="attacks of a tenth of the size")
    parser.add_argument("--attack", default="", help="only attacks with this in their name")
    options = parser.parse_args()
    scale = SMALL if options.small else FULL
    problems: list[str] = []
    measured: list[Measured] = []
    print(f"{'attack':38} {'inputs':>8} {'pause ms':>9} {'machine':>9} {'MiB':>7} {'harms':>5}  what became of it")
    with tempfile.TemporaryDirectory(prefix="oncelog-hostile-") as directory:
        if options.frames:
            with Stage(Path(directory, "frames"), FRAME_SETTINGS) as stage:
                attack_frames(stage, options.frames, options.seed, print_row)
                stage.finish()
                print_bystander(stage)
                problems += problems_of(stage)
                measured += stage.measured
        with Stage(Path(directory, "defaults"), ()) as stage:
            attack_defaults(stage, scale, options.seed, print_row, options.attack)
            stage.finish()
            print_bystander(stage)
            problems += problems_of(stage)
            measured += stage.measured
        problems += attack_secured(Path(directory, "secured"), small=options.small, wanted=options.attack)
    print(f"{sum(attack.inputs for attack in measured)} inputs")
    print(summary(measured))
    print("\n".join(problems) if problems else "nothing was lost, nothing was harmed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
