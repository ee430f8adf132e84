"""Checkpoints that are moved, copied and restored: each row once, or a refusal that says what to do, on real Spark."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.copying_case import Case
from tests.spark.copying_query import ROWS_IN_BATCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kills

LAST = 2
"""Of the three batches that a case begins with."""
_REFUSAL = "Restore the newest checkpoint; or begin with a new one, and have it read from where the decided batch ends"


def with_checkpoint(case: Case, location: object) -> Case:
    """The same query, with its checkpoint there."""
    case.copying = replace(case.copying, checkpoint=str(location))
    return case


def copied(case: Case, name: str) -> Path:
    """Another directory with the same checkpoint."""
    return Path(shutil.copytree(case.copying.checkpoint, case.directory / name))


def forget(checkpoint: Path, log: str, after: int) -> None:
    """Delete what Spark has noted after a batch."""
    for path in (checkpoint / log).iterdir():
        number = path.name.removeprefix(".").partition(".")[0]
        if number.isdecimal() and int(number) > after:
            path.unlink()


@pytest.mark.parametrize("spell", ["{}/", "file:{}", "file://{}", "{}/../checkpoint"])
def test_checkpoint_spelt_in_another_way_writes_no_batch_again(spark: "SparkSession", case: Case, spell: str) -> None:
    assert case.crash(spark, "commit/all/after", "kill-process") is not None
    with_checkpoint(case, spell.format(case.copying.checkpoint)).recover(spark)
    case.check()


def test_checkpoint_that_was_moved_writes_no_batch_again(spark: "SparkSession", case: Case) -> None:
    assert case.crash(spark, "commit/end_tasks/between", "kill-process") is not None
    moved = Path(case.copying.checkpoint).rename(case.directory / "moved")
    with_checkpoint(case, moved).recover(spark)
    case.check()


def test_checkpoint_of_any_earlier_state_is_refused_or_continued(spark: "SparkSession", case: Case) -> None:
    """Of each state that the checkpoint had on the way, and with rows that were not there then."""
    assert case.run(spark) is None
    case.check()
    original = case.copying.checkpoint
    outcomes = {}
    for planned in range(LAST, -2, -1):
        for done in (planned, planned - 1):
            if done < -1:
                continue
            state = Path(shutil.copytree(original, case.directory / f"state-{planned}-{done}"))
            forget(state, "offsets", planned)
            forget(state, "commits", done)
            case.add_rows(ROWS_IN_BATCH // 2)
            failure = with_checkpoint(case, state).run(spark)
            outcomes[planned, done] = failure
            found = case.found()
            assert len(set(found)) == len(found)
            if failure is None:
                assert found == sorted(case.rows)
                original = str(state)
            else:
                assert "CheckpointRewound" in failure
                assert _REFUSAL in failure
    assert outcomes[LAST, LAST] is None
    assert [each for each, failure in outcomes.items() if failure is None] == [(LAST, LAST)]
    with_checkpoint(case, original).recover(spark)
    case.check()


def test_batch_that_is_planned_again_with_the_same_offsets_is_skipped(spark: "SparkSession", case: Case) -> None:
    """The commit log has lost its newest entry, and the offset log has not."""
    assert case.run(spark) is None
    forget(Path(case.copying.checkpoint), "commits", LAST - 1)
    case.add_rows(ROWS_IN_BATCH)
    case.recover(spark)
    case.check()


def test_second_query_with_a_copied_checkpoint_is_refused_when_the_first_has_continued(
    spark: "SparkSession", case: Case
) -> None:
    assert case.run(spark) is None
    first = case.copying.checkpoint
    copy = copied(case, "copy")
    case.add_rows(ROWS_IN_BATCH)
    case.recover(spark)
    case.add_rows(ROWS_IN_BATCH)
    failure = with_checkpoint(case, copy).run(spark)
    assert failure is not None
    assert "CheckpointRewound" in failure
    assert _REFUSAL in failure
    with_checkpoint(case, first).recover(spark)
    case.check()
