"""A topic to be copied by Spark, and the query that does it, run into a crash and run again until it has done all."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.processes import REPOSITORY
from tests.spark.copying_query import ROWS_IN_BATCH, Copying
from tests.spark.other_end import OtherEnd, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 3 * ROWS_IN_BATCH
SECONDS: Final = 600.0
_STARTS: Final = 5


class Case:
    """A topic to be copied, and the query that does it."""

    def __init__(self, other_end: OtherEnd, name: Callable[[str], str], directory: Path, replicas: int = 1) -> None:
        self.other_end = other_end
        self.directory = directory
        self.copying = Copying(
            address=other_end.address,
            source=other_end.create(name("in"), 2, replicas=replicas),
            target=other_end.create(name("out"), 3, replicas=replicas),
            checkpoint=str(directory / "checkpoint"),
            tasks=2,
            done=str(directory / "crashed"),
        )
        self.rows: list[Row] = []
        self.add_rows(ROWS)

    def add_rows(self, count: int) -> None:
        first = len(self.rows)
        added = [(b"%d" % number, b"value %d" % number) for number in range(first, first + count)]
        self.other_end.write(self.copying.source, added)
        self.rows += added

    @property
    def crashed(self) -> Path:
        return self.directory / "crashed"

    def launch(self, point: str, action: str) -> "subprocess.Popen[bytes]":
        """A driver of its own that runs into its point."""
        copying = replace(self.copying, point=point, action=action)
        with (self.directory / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.copying_query", copying.argument],
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable},
            )

    def kill_driver(self, point: str) -> None:
        """Until it has come to its point: a driver may also fail for reasons of its own, such as a slow machine."""
        for _ in range(_STARTS):
            code = self.launch(point, "kill-driver").wait(SECONDS)
            if self.crashed.exists():
                assert code == -signal.SIGKILL
                return
        raise AssertionError(f"{point} was not reached:\n{(self.directory / 'driver.log').read_text()[-3000:]}")

    def stop_driver(self, point: str) -> "subprocess.Popen[bytes]":
        """The same, but its process is only stopped there."""
        for _ in range(_STARTS):
            process = self.launch(point, "stop-process")
            if _happens(lambda: self.crashed.exists() and self.crashed.read_text() != "", process):
                return process
        raise AssertionError(f"{point} was not reached:\n{(self.directory / 'driver.log').read_text()[-3000:]}")

    def crash(self, spark: "SparkSession", point: str, action: str) -> str | None:
        """The same in the session that all tests share; return how the query failed, if it did."""
        failure: str | None = None
        for _ in range(_STARTS):
            failure = self.run(spark, point=point, action=action)
            if self.crashed.exists():
                return failure
        raise AssertionError(f"{point} was not reached: {failure}")

    def recover(self, spark: "SparkSession") -> None:
        """Start the query until it has done all, each time with another number of tasks."""
        failure: str | None = ""
        for tasks in range(3, 3 + _STARTS):
            failure = self.run(spark, tasks=tasks)
            if failure is None:
                return
        raise AssertionError(failure)

    def run(self, spark: "SparkSession", *, point: str = "", action: str = "raise", tasks: int = 3) -> str | None:
        """One run in the session that all tests share; return how it failed."""
        query = replace(self.copying, point=point, action=action, tasks=tasks).start(spark, "")
        try:
            assert query.awaitTermination(SECONDS)
        except Exception as error:
            return str(error)
        return None

    def found(self) -> list[Row]:
        """What readers of committed records see."""
        self.other_end.wait_until_ended(self.copying.target)
        read = self.other_end.read(self.copying.target)
        return sorted((each.key, each.value) for part in read.values() for each in part)

    def check(self) -> None:
        """Every record once, and nothing of the sink's is open."""
        assert self.found() == sorted(self.rows)
        admin = self.other_end.client.admin
        listed = self.other_end.client.run(admin.list_transactions(states=["Ongoing"]))
        assert not listed


def _happens(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> bool:
    """Ask often, while the process lives; False if it has ended before."""
    waited = 0.0
    while not condition():
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            waited += 0.2
            assert waited < SECONDS, "it did not come to its point"
        else:
            return False
    return True
