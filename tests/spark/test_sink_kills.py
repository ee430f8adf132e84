"""Kill -9 between every two steps of the sink's protocol, on real Spark and a real broker, checked record by record.

Each case copies a topic in three batches, is killed at its point, and is run again with another number of tasks. Then
the target has every record once, and none of the sink's transactions is open.
"""

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.copying_case import SECONDS, Case
from tests.spark.crashing_session import process_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.parametrize("point", cases(PRELUDE + TASK + COMMIT))
def test_driver_killed_at_any_step_writes_rows_once(spark: "SparkSession", case: Case, point: str) -> None:
    case.kill_driver(point)
    case.recover(spark)
    case.check()


@pytest.mark.parametrize("point", cases(TASK))
def test_worker_killed_at_any_step_writes_rows_once(spark: "SparkSession", case: Case, point: str) -> None:
    """Spark tries the task again, or with ``local[n]`` the query fails and is started again."""
    if case.crash(spark, point, "kill-process") is not None:
        case.recover(spark)
    case.check()


@pytest.mark.parametrize("point", cases(("task/open_writer/after", "task/write/after", "task/finish/after")))
def test_task_that_is_retried_writes_rows_once(case: Case, point: str) -> None:
    """In ``local[2,4]`` a task has four attempts: the batch goes on, and the stray is aborted."""
    driver = case.launch(point, "kill-process")
    assert driver.wait(SECONDS) == 0, (case.directory / "driver.log").read_text()[-3000:]
    assert case.crashed.exists()
    case.check()


@pytest.mark.parametrize("point", cases(PRELUDE + COMMIT))
@pytest.mark.parametrize("action", ["kill-process", "raise"])
def test_planner_or_committer_killed_at_any_step_writes_rows_once(
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
def test_driver_that_wakes_late_fails_and_changes_nothing(spark: "SparkSession", case: Case, point: str) -> None:
    """Its process is stopped, the query goes on elsewhere to the end, and then it wakes."""
    zombie = case.stop_driver(point)
    try:
        case.recover(spark)
        case.check()
        os.kill(process_of(case.crashed), signal.SIGCONT)
        assert zombie.wait(SECONDS) not in (0, None)
    finally:
        zombie.kill()
        zombie.wait()
    case.check()


@pytest.mark.kills
def test_stuck_sink_on_the_same_state_partition_delays_no_other_sink(spark: "SparkSession", case: Case) -> None:
    """Its open transaction is before all that this sink writes and reads there."""
    from random import Random

    from oncelog.clients.producer import Producer, ProducerConfig
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
