"""Many histories on all cores: bounded in memory, stopped at the first failure if that is wanted, and added up."""

import gc
import logging
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from tests.simulation.histories import HistoryName, Played, play

_WAITING_PER_JOB: Final = 4
_HISTORIES_PER_PROCESS: Final = 200
"""A process ends after so many, and with it whatever they left behind."""
_GARBAGE_THRESHOLD: Final = 50_000


@dataclass
class Totals:
    """What a series of histories has come to."""

    histories: Counter[str] = field(default_factory=Counter)
    """By kind."""
    virtual_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    """Events by kind."""
    failed: list[Played] = field(default_factory=list)

    def add(self, played: Played) -> None:
        self.histories[played.name.kind] += 1
        self.virtual_seconds += played.virtual_seconds
        self.counts += played.counts
        if played.failure:
            self.failed.append(played)


def played(
    names: Iterable[HistoryName], *, jobs: int, digests: bool = False, hash_seed: str | None = None
) -> Iterator[Played]:
    """Play histories in so many processes, and yield them as they end. Few wait at a time, so ``names`` may be endless.

    ``hash_seed``: what ``PYTHONHASHSEED`` is in these processes.
    """
    left = iter(names)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        max_tasks_per_child=_HISTORIES_PER_PROCESS,
    )
    with _hash_seed(hash_seed):
        running: set[Future[Played]] = set()
        try:
            while True:
                for name in islice(left, jobs * _WAITING_PER_JOB - len(running)):
                    running.add(pool.submit(partial(play, name, digests=digests)))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _hash_seed(value: str | None) -> Iterator[None]:
    """Set ``PYTHONHASHSEED`` for the processes that are started inside."""
    former = os.environ.get("PYTHONHASHSEED")
    if value is not None:
        os.environ["PYTHONHASHSEED"] = value
    try:
        yield
    finally:
        if former is not None:
            os.environ["PYTHONHASHSEED"] = former
        elif value is not None:
            del os.environ["PYTHONHASHSEED"]


def _prepare() -> None:
    """Prepare a process that plays histories: what brokers log goes nowhere, and garbage is collected seldom.

    Ctrl-C, which every process of a terminal gets, ends the parent process, which prints what was played.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)


def differing_digests(
    names: Iterable[HistoryName], hash_seeds: Iterable[str], *, jobs: int, progress: Callable[[str], None]
) -> dict[HistoryName, set[str]]:
    """Play the same histories under several hash seeds; return those whose digests differ. They may fail alike."""
    chosen = list(names)
    digests: dict[HistoryName, set[str]] = {name: set() for name in chosen}
    for hash_seed in hash_seeds:
        for one in played(chosen, jobs=jobs, digests=True, hash_seed=hash_seed):
            digests[one.name].add(one.digest)
        progress(f"PYTHONHASHSEED={hash_seed}: {len(chosen)} histories")
    return {name: found for name, found in digests.items() if len(found) > 1}
