"""``python -m tests.faults``: the faults that are requested, as often as requested; exits with 1 on any violation.

Faults come in an order that the seed decides, so that each meets a cluster that others have passed over; every few
rounds a new cluster begins. After a violation the cluster is stopped, its directory kept, and a new one begins, too.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

from tests.faults.audit import describe
from tests.faults.client_process import CLIENTS, lacking
from tests.faults.deeds import PROCESS_FAULTS
from tests.faults.disks import DISK_FAULTS
from tests.faults.fault import Fault
from tests.faults.links import LINK_FAULTS, LinkNetwork
from tests.faults.network import DirectNetwork
from tests.faults.power import FLUSH_EACH, POWER_FAULTS
from tests.faults.report import table
from tests.faults.rounds import RoundResult, Stage
from tests.faults.volumes import why_not

VOLUME_FAULTS: Final = (*DISK_FAULTS, *POWER_FAULTS)
FAULTS: Final[dict[str, Fault]] = {fault.name: fault for fault in (*PROCESS_FAULTS, *LINK_FAULTS, *VOLUME_FAULTS)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*FAULTS], metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--times", type=int, default=5, help="how often each fault strikes [5]")
    parser.add_argument("--sample", type=int, metavar="N", help="play so many of them, drawn by the seed [all]")
    parser.add_argument("--clients", nargs="+", choices=[*CLIENTS], default=[*CLIENTS], help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--seed", type=int, help="of the order, the victims and the pauses, to repeat a run")
    parser.add_argument("--rounds", type=int, default=10, help="how many faults strike one cluster [10]")
    parser.add_argument("--brief", action="store_true", help="hold each fault for the shortest time that it may have")
    parser.add_argument("--secured", action="store_true", help="TLS and logins between all, and access control lists")
    parser.add_argument("--dir", type=Path, help="where the clusters are")
    parser.add_argument("--keep", action="store_true", help="keep them all, not only those with violations")
    return parser.parse_args()


class Run:
    """All rounds of one call."""

    def __init__(self, arguments: argparse.Namespace, seed: int, directory: Path) -> None:
        self._arguments = arguments
        self._directory = directory
        self._rng = Random(seed)
        self._began = perf_counter()
        self.results: list[RoundResult] = []

    def tell(self, text: str) -> None:
        print(f"{perf_counter() - self._began:7.1f} s  {text}", flush=True)

    async def play(self) -> None:
        chosen = [FAULTS[name] for name in self._arguments.only or FAULTS]
        reason = why_not()
        if reason is not None and any(fault in VOLUME_FAULTS for fault in chosen):
            self.tell(f"faults of disks are left out: {reason}")
            chosen = [fault for fault in chosen if fault not in VOLUME_FAULTS]
        plan = [fault for fault in chosen for _ in range(self._arguments.times)]
        self._rng.shuffle(plan)
        del plan[self._arguments.sample or len(plan) :]
        plan.sort(key=lambda fault: fault in POWER_FAULTS)  # On clusters of their own, with other settings.
        number = 0
        while plan:
            number += 1
            flushes = plan[0] in POWER_FAULTS
            alike = [fault for fault in plan[: self._arguments.rounds] if (fault in POWER_FAULTS) == flushes]
            played = await self._play_on_one_cluster(self._directory / f"cluster-{number}", alike, flushes=flushes)
            del plan[:played]

    async def _play_on_one_cluster(self, directory: Path, plan: Sequence[Fault], *, flushes: bool) -> int:
        """Play rounds until one is violated; how many were played. ``flushes``: brokers sync before they respond."""
        needs_links = any(fault in LINK_FAULTS for fault in plan)
        is_secured = self._arguments.secured
        secured_cluster = directory / "cluster" if is_secured else None
        network = LinkNetwork(self._rng, secured_cluster) if needs_links else DirectNetwork()
        needs_volumes = any(fault in VOLUME_FAULTS for fault in plan)
        clients, settings = self._arguments.clients, [FLUSH_EACH] * flushes
        stage = Stage(
            directory,
            network,
            clients,
            self._rng,
            self.tell,
            has_volumes=needs_volumes,
            settings=settings,
            is_secured=is_secured,
        )
        played, is_clean = 0, True
        try:
            await stage.open()
            self.tell(f"a cluster with load: {directory}")
            while is_clean and played < len(plan):
                result = await stage.play(plan[played], is_brief=self._arguments.brief)
                self.results.append(result)
                self._tell_result(result)
                is_clean = not result.violations
                played += 1
        finally:
            await stage.close()
        if is_clean and not self._arguments.keep:
            shutil.rmtree(directory)
        else:
            self.tell(f"kept: {directory}")
        return played

    def _tell_result(self, result: RoundResult) -> None:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.outcomes.items()))
        stalls = ", ".join(f"{client} {role} {seconds:.1f}" for (client, role), seconds in result.stalls.items())
        self.tell(f"  {result.seconds:.1f} s; {outcomes}; worst stalls: {stalls} s")
        for line in describe(result.violations):
            self.tell(f"  VIOLATED {line}")


async def _until_signal(run: Run) -> None:
    """Play; SIGTERM stops everything in order, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run.play()


def main() -> None:
    arguments = _arguments()
    missing = lacking(arguments.clients)
    if missing:
        sys.exit(missing)
    seed = arguments.seed if arguments.seed is not None else int.from_bytes(os.getrandom(4))
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="oncelog-faults-"))
    run = Run(arguments, seed, directory)
    run.tell(f"seed {seed}; clients {', '.join(arguments.clients)}")
    asyncio.run(_until_signal(run))
    print()
    print(table(run.results))
    violated = sum(bool(result.violations) for result in run.results)
    seconds = perf_counter() - run._began
    print(f"\n{len(run.results)} faults in {seconds:.0f} s, {violated} with violations; seed {seed}")
    if not any(directory.iterdir()):
        directory.rmdir()
    sys.exit(1 if violated else 0)


if __name__ == "__main__":
    main()
