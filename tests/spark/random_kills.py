"""``make spark-kills``, second part: random kill -9 of everything that a streaming query consists of, from a seed.

Each round has a broker and a query (``restarted_query``) of its own, which copies a topic while rows are added to it.
What is killed is drawn: the driver (its JVM and its Python), one of the Python processes that Spark starts (tasks, the
planner, the committer, the source, or the daemon that forks them), or the broker. So is the moment: at once,
some time later, while transactions of tasks are open, or when a batch has just been decided. The driver and the broker
are started again; the query is started again by its driver, with the checkpoint moved or spelt otherwise.

After each round readers of committed records find every row once, no transaction is open, and no run of the query has
refused anything that needs a person. One round of a run alone: ``--seed`` with the number that the round has printed,
and ``--kills`` of one round.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from oncelog.clients.admin.transactions import ONGOING, list_transactions
from oncelog.clients.errors import ClientError
from oncelog.spark_connector.target_topics import STATE_TOPIC
from tests.processes import REPOSITORY, OncelogProcess
from tests.spark.other_end import OtherEnd
from tests.spark.restarted_query import FAILED, Restarted
from tests.spark.session_processes import by_role, kill, members

SOURCE, TARGET = "in", "out"
KILLS_IN_ROUND: Final = 50
ROWS_IN_BATCH: Final = 60
ROWS_AHEAD: Final = 6 * ROWS_IN_BATCH
"""Added before each kill, so that there is nearly always a batch at work."""
TARGETS: Final = {"task": 36, "committer": 20, "planner": 12, "broker": 12, "source": 8, "driver": 6, "daemon": 6}
"""What is killed, by weight: a driver's start takes ten times as long as anything else here."""
MOMENTS: Final = {"at once": 1, "later": 3, "open": 3, "decided": 3}
_LATER_SECONDS: Final = 1.5
_PROGRESS_SECONDS: Final = 240.0
_MOMENT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.01
_IS_FOLLOWED_UP: Final = 0.3
"""Of all kills: the next one does not wait until the query goes on."""
_BEFORE_REASON: Final = "terminated with exception: "
_LONGEST_REASON: Final = 60
"""Characters."""
_NEEDS_A_PERSON: Final = ("TransactionsLost", "CheckpointRewound", "DataLoss", "UnreadableState", "RangeUnreadable")
_ERRORS: Final = (*_NEEDS_A_PERSON, "SinkFenced", "SinkUnavailable", "NoBrokerReachable", "BatchNotDecided")
"""Of the connector, those that need a person first."""


class KillsFailed(Exception):
    """The query did not go on, or did not end well."""


@dataclass(slots=True)
class Tally:
    """What one round has come to."""

    kills: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """Of runs of the query, by reason."""
    rows: int = 0
    batches: int = 0
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    left_open: int = 0

    @property
    def is_right(self) -> bool:
        refused = any(self.failures[each] for each in _NEEDS_A_PERSON)
        return not (self.lost or self.doubled or self.foreign or self.left_open or refused)

    def __str__(self) -> str:
        kills = ", ".join(f"{what} {count}" for what, count in sorted(self.kills.items()))
        failures = ", ".join(f"{what} {count}" for what, count in sorted(self.failures.items())) or "none"
        return (
            f"{self.kills.total()} kills ({kills}); {self.batches:,} batches, {self.rows:,} rows: {self.lost} lost, "
            f"{self.doubled} doubled, {self.foreign} foreign, {self.left_open} transactions open; "
            f"runs that failed: {failures}"
        )

    def add(self, other: "Tally") -> None:
        self.kills += other.kills
        self.failures += other.failures
        self.rows += other.rows
        self.batches += other.batches
        self.lost += other.lost
        self.doubled += other.doubled
        self.foreign += other.foreign
        self.left_open += other.left_open


class Round:
    """One broker, one query, and its kills."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = Random(seed)
        self.tally = Tally()
        self.broker = OncelogProcess(directory / "broker")
        self.log = directory / "driver.log"
        self.drivers: list[subprocess.Popen[bytes]] = []

    def play(self, kills: int) -> Tally:
        with self.broker, OtherEnd(self.broker.address) as end:
            end.create(SOURCE, 3)
            end.create(TARGET, 3)
            try:
                self.add_rows(end)
                self.start_driver()
                self.wait_for_batch()
                for _ in range(kills):
                    self.add_rows(end)
                    self.kill_one(end)
                    if self.rng.random() >= _IS_FOLLOWED_UP:
                        self.wait_for_batch()
                self.finish()
            except BaseException:
                print(self.log.read_text(errors="replace")[-6000:], file=sys.stderr)
                raise
            finally:
                for driver in self.drivers:
                    kill(*members(driver.pid))
                    driver.wait()
            self.check(end)
        return self.tally

    # The query

    def start_driver(self) -> None:
        query = Restarted(
            address=self.broker.address,
            source=SOURCE,
            target=TARGET,
            directory=str(self.directory),
            rows_in_batch=ROWS_IN_BATCH,
            seed=self.rng.getrandbits(32),
        )
        with self.log.open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.restarted_query", query.argument],
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable},
            )
        self.drivers.append(driver)

    def last_batch(self) -> int:
        """The newest that Spark has committed; -1 before the first."""
        names = [each.name for each in self.directory.glob("checkpoint-*/commits/*")]
        return max((int(each) for each in names if each.isdecimal()), default=-1)

    def wait_for_batch(self) -> None:
        before = self.last_batch()
        self._until(lambda: self.last_batch() > before, _PROGRESS_SECONDS, "another batch")

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Until something has happened, while there is a driver: one that has ended by itself is started again."""
        pause = threading.Event()
        for _ in range(int(seconds / _LOOK_SECONDS)):
            if condition():
                return
            if self.drivers[-1].poll() is not None:
                self.tally.failures["driver ended"] += 1
                self.start_driver()
            pause.wait(_LOOK_SECONDS)
        raise KillsFailed(f"no {what} within {seconds:g} s")

    def finish(self) -> None:
        (self.directory / "finish").touch()
        self._until(lambda: self.drivers[-1].poll() == 0, _PROGRESS_SECONDS, "end of the query")

    # Kills

    def add_rows(self, end: OtherEnd) -> None:
        first = self.tally.rows
        end.write(SOURCE, [(b"%d" % row, b"value %d" % row) for row in range(first, first + ROWS_AHEAD)])
        self.tally.rows += ROWS_AHEAD

    def kill_one(self, end: OtherEnd) -> None:
        """One of what there is at a moment that is drawn."""
        self._wait_for(self._drawn(MOMENTS), end)
        alive = {"broker": [self.broker.pid], **by_role(self.drivers[-1].pid)}
        what = self._drawn({each: weight for each, weight in TARGETS.items() if each in alive})
        if what == "broker":
            self.broker.kill()
            self.broker.start()
        elif what == "driver":
            self._kill_driver()
        else:
            kill(self.rng.choice(alive[what]))
        self.tally.kills[what] += 1

    def _drawn(self, weights: dict[str, int]) -> str:
        (drawn,) = self.rng.choices(list(weights), list(weights.values()))
        return drawn

    def _kill_driver(self) -> None:
        driver = self.drivers[-1]
        java = by_role(driver.pid).get("driver", [])
        kill(driver.pid, *java)
        driver.wait()
        self._until_gone(java)
        self.start_driver()

    def _until_gone(self, pids: list[int]) -> None:
        """A JVM that is killed may still be writing its checkpoint until it is gone."""
        session, pause = self.drivers[-1].pid, threading.Event()
        for _ in range(int(_PROGRESS_SECONDS / _LOOK_SECONDS)):
            if not members(session).keys() & set(pids):
                return
            pause.wait(_LOOK_SECONDS)
        raise KillsFailed("a JVM survives kill -9")

    def _wait_for(self, moment: str, end: OtherEnd) -> None:
        """Until it has come, or for so long that it may not come."""
        pause = threading.Event()
        if moment == "later":
            pause.wait(self.rng.uniform(0, _LATER_SECONDS))
        if moment not in ("open", "decided"):
            return
        decided = self._decisions(end)
        for _ in range(int(_MOMENT_SECONDS / _LOOK_SECONDS)):
            with suppress(ClientError):
                if self._open(end) if moment == "open" else self._decisions(end) > decided:
                    return
            pause.wait(_LOOK_SECONDS)

    def _open(self, end: OtherEnd) -> list[str]:
        """Transactions of tasks."""
        listed = end.client.run(list_transactions(end.client.cluster, states=[ONGOING]))
        return [each.transactional_id for each in listed if not each.transactional_id.endswith(".driver")]

    def _decisions(self, end: OtherEnd) -> int:
        return sum(end.ends(STATE_TOPIC).values())

    # What has become of it

    def check(self, end: OtherEnd) -> None:
        end.wait_until_ended(TARGET)
        records = [each for partition in end.read(TARGET).values() for each in partition]
        counted = Counter(int(each.key or b"-1") for each in records if each.value == b"value " + (each.key or b""))
        self.tally.foreign = len(records) - counted.total()
        self.tally.lost = sum(row not in counted for row in range(self.tally.rows))
        self.tally.doubled = counted.total() - len(counted)
        self.tally.batches = self.last_batch() + 1
        listed = end.client.run(list_transactions(end.client.cluster, states=[ONGOING]))
        self.tally.left_open = len(listed)
        lines = self.log.read_text(errors="replace").splitlines()
        self.tally.failures.update(reason(each.removeprefix(FAILED)) for each in lines if each.startswith(FAILED))


def reason(failure: str) -> str:
    """Why a run of the query has failed, in a word or two."""
    named = [each for each in _ERRORS if each in failure]
    if named:
        return named[0]
    if "crashed" in failure or "EOFException" in failure:
        return "process killed"
    return failure.partition(_BEFORE_REASON)[2][:_LONGEST_REASON] or "other"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    requested = parser.parse_args()
    total, left, seed = Tally(), requested.kills, requested.seed
    is_right = True
    while left > 0:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="oncelog-spark-kills-") as directory:
            played = Round(Path(directory), seed).play(min(left, KILLS_IN_ROUND))
        verdict = "right" if played.is_right else "WRONG"
        print(f"seed {seed}: {verdict}, {time.perf_counter() - began:.0f} s: {played}", flush=True)
        total.add(played)
        is_right = is_right and played.is_right
        left, seed = left - KILLS_IN_ROUND, seed + 1
    print(f"in all: {'right' if is_right else 'WRONG'}: {total}")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
