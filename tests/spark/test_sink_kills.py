"""Kill -9 between every two steps of the sink's protocol, on real Spark and a real broker, checked record by record.

Each case copies a topic in three batches, is killed at its point, and is run again with another number of tasks. Then
the target has every record once, and none of the sink's transactions is open.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.processes import REPOSITORY, OncelogProcess
from tests.spark.copying_query import ROWS_IN_BATCH, Copying
from tests.spark.crashing_session import process_of
from tests.spark.other_end import OtherEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 3 * ROWS_IN_BATCH
_SECONDS: Final = 600.0
_STARTS: Final = 5
PRELUDE: Final = tuple(
    f"prelude/{call}/{when}"
    for call in ("init_producer_id", "read_state", "open_transactions", "append_state", "end_driver")
    for when in ("before", "after")
)
COMMIT: Final = (
    "commit/read_state/after",
    "commit/describe/before",
    "commit/append_state/before",
    "commit/append_state/after",
    "commit/end_driver/after",
    "commit/end_tasks/before",
    "commit/end_tasks/between",
    "commit/end_tasks/after",
    "commit/open_transactions/after",
    "commit/all/after",
)
TASK: Final = (
    "task/open_writer/before",
    "task/open_writer/after",
    "task/write/after",
    "task/finish/after",
    "task/read_state/after",
)
_SMOKE: Final = frozenset({"commit/append_state/after", "commit/end_tasks/between", "task/finish/after"})


def cases(points: tuple[str, ...]) -> list[object]:
    return [pytest.param(point, marks=[] if point in _SMOKE else pytest.mark.kills) for point in points]


class Case:
    """A topic to be copied, and the query that does it."""

    def __init__(self, other_end: OtherEnd, name: Callable[[str], str], directory: Path) -> None:
        self.other_end = other_end
        self.directory = directory
        self.copying = Copying(
            address=other_end.address,
            source=other_end.create(name("in"), 2),
            target=other_end.create(name("out"), 3),
            checkpoint=str(directory / "checkpoint"),
            tasks=2,
            done=str(directory / "crashed"),
        )
        self.rows = [(b"%d" % number, b"value %d" % number) for number in range(ROWS)]
        other_end.write(self.copying.source, self.rows)

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
            code = self.launch(point, "kill-driver").wait(_SECONDS)
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
            assert query.awaitTermination(_SECONDS)
        except Exception as error:
            return str(error)
        return None

    def check(self) -> None:
        """Every record once, and nothing of the sink's is open."""
        self.other_end.wait_until_ended(self.copying.target)
        found = [(each.key, each.value) for part in self.other_end.read(self.copying.target).values() for each in part]
        assert sorted(found) == sorted(self.rows)
        admin = self.other_end.client.admin
        listed = self.other_end.client.run(admin.list_transactions(states=["Ongoing"]))
        assert not listed


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    """All transactions on it are of the query under test. Its one state partition is shared by all sinks."""
    with OncelogProcess(tmp_path_factory.mktemp("kills")) as process:
        with OtherEnd(process.address) as end:
            end.create("__spark_sink_state", 1, {"cleanup.policy": "compact"})
        yield process


@pytest.fixture
def case(own_broker: OncelogProcess, new_name: Callable[[str], str], tmp_path: Path) -> Iterator[Case]:
    with OtherEnd(own_broker.address) as end:
        yield Case(end, new_name, tmp_path)


@pytest.mark.parametrize("point", cases(PRELUDE + TASK + COMMIT))
def test_the_driver_is_killed(spark: "SparkSession", case: Case, point: str) -> None:
    case.kill_driver(point)
    case.recover(spark)
    case.check()


@pytest.mark.parametrize("point", cases(TASK))
def test_a_worker_is_killed(spark: "SparkSession", case: Case, point: str) -> None:
    """Spark tries the task again, or with ``local[n]`` the query fails and is started again."""
    if case.crash(spark, point, "kill-process") is not None:
        case.recover(spark)
    case.check()


@pytest.mark.parametrize("point", cases(("task/open_writer/after", "task/write/after", "task/finish/after")))
def test_a_task_is_tried_again(case: Case, point: str) -> None:
    """In ``local[2,4]`` a task has four attempts: the batch goes on, and the stray is aborted."""
    driver = case.launch(point, "kill-process")
    assert driver.wait(_SECONDS) == 0, (case.directory / "driver.log").read_text()[-3000:]
    assert case.crashed.exists()
    case.check()


@pytest.mark.parametrize("point", cases(PRELUDE + COMMIT))
@pytest.mark.parametrize("action", ["kill-process", "raise"])
def test_the_planners_or_committers_process_is_killed(
    spark: "SparkSession", case: Case, point: str, action: str
) -> None:
    """The query fails, and ``abort`` is called where tasks were done."""
    assert case.crash(spark, point, action) is not None
    case.recover(spark)
    case.check()


@pytest.mark.parametrize(
    "point",
    cases(
        (
            "prelude/read_state/after",
            "commit/describe/before",
            "commit/append_state/before",
            "commit/append_state/after",
            "commit/end_tasks/between",
            "commit/open_transactions/after",
        )
    ),
)
def test_a_driver_wakes_late(spark: "SparkSession", case: Case, point: str) -> None:
    """Its process is stopped, the query goes on elsewhere to the end, and then it wakes."""
    zombie = case.stop_driver(point)
    try:
        case.recover(spark)
        case.check()
        os.kill(process_of(case.crashed), signal.SIGCONT)
        assert zombie.wait(_SECONDS) not in (0, None)
    finally:
        zombie.kill()
        zombie.wait()
    case.check()


@pytest.mark.kills
def test_another_sink_is_stuck_on_the_same_state_partition(spark: "SparkSession", case: Case) -> None:
    """Its open transaction is before all that this sink writes and reads there."""
    from random import Random

    from clients.producer import Producer, ProducerConfig
    from tests.spark.other_end import wall_clock

    config = ProducerConfig(bootstrap=case.other_end.address, transactional_id="stuck-elsewhere")
    end = case.other_end

    async def get_stuck() -> Producer:
        producer = Producer(config, rng=Random(1), wall_clock=wall_clock)
        await producer.start()
        await producer.init_transactions()
        producer.begin_transaction()
        await (await producer.send("__spark_sink_state", b"{}", key=b"another sink"))
        return producer

    stuck = end.client.run(get_stuck())
    try:
        assert case.crash(spark, "commit/end_tasks/between", "kill-process") is not None
        case.recover(spark)
    finally:
        end.client.run(stuck.abort_transaction())
        end.client.run(stuck.close())
    case.check()


def _happens(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> bool:
    """Ask often, while the process lives; False if it has ended before."""
    waited = 0.0
    while not condition():
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            waited += 0.2
            assert waited < _SECONDS, "it did not come to its point"
        else:
            return False
    return True
