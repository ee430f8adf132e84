"""A driver that stands still until its tasks' transactions time out: the batch is run again, or the loss is said."""

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.spark.copying_case import SECONDS, Case
from tests.spark.copying_query import ROWS_IN_BATCH
from tests.spark.crashing_session import process_of
from tests.spark.streams import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kills

TIMEOUT_MS = "15000"
"""Long enough for a batch on a busy machine; the tests wait this long."""


def stand_still(spark: "SparkSession", case: Case, point: str) -> str:
    """Stop the committer at a point until its tasks' transactions have timed out; how the query ends then."""
    admin = case.other_end.client.admin

    def is_open() -> bool:
        listed = case.other_end.client.run(admin.list_transactions(states=["Ongoing"]))
        return any(not each.transactional_id.endswith(".driver") for each in listed)

    case.copying = replace(case.copying, sink_options={"transactionTimeoutMs": TIMEOUT_MS})
    query = replace(case.copying, point=point, action="stop-process").start(spark, "")
    try:
        wait_for(query, lambda: case.crashed.exists() and case.crashed.read_text() != "")
        wait_for(query, lambda: not is_open())
    finally:
        if case.crashed.exists():
            os.kill(process_of(case.crashed), signal.SIGCONT)
    with pytest.raises(Exception, match="STREAM_FAILED") as failed:
        query.awaitTermination(SECONDS)
    return str(failed.value)


def test_time_out_before_the_decision_aborts_the_batch_which_is_run_again(spark: "SparkSession", case: Case) -> None:
    failure = stand_still(spark, case, "commit/describe/before")
    assert "BatchNotDecided" in failure
    assert "transactionTimeoutMs must be longer" in failure
    case.recover(spark)
    case.check()


def test_time_out_after_the_decision_is_reported_at_every_start(spark: "SparkSession", case: Case) -> None:
    """Until it is written again, and one run with ``failOnDataLoss=false`` goes on."""
    failure = stand_still(spark, case, "commit/end_tasks/before")
    for _ in range(2):
        assert "TransactionsLost" in failure
        assert "set failOnDataLoss=false for one run to go on" in failure
        failure = case.run(spark) or ""
    assert case.found() == []
    case.copying = replace(case.copying, sink_options={"failOnDataLoss": "false"})
    case.recover(spark)
    found = case.found()
    assert len(found) == len(set(found)) == len(case.rows) - ROWS_IN_BATCH
    assert set(found) < set(case.rows)
