"""A query that goes on from a checkpoint older than what its sink has written: no row is lost or doubled silently."""

import itertools
from dataclasses import replace

import pytest

from oncelog.spark_connector.sink.commit.batch_content import Content
from oncelog.spark_connector.sink.commit.sink_errors import CheckpointRewound, TransactionsLost
from oncelog.spark_connector.sink.commit.sink_transactions import Driver
from oncelog.spark_connector.sink.commit.state_record import UNKNOWN_PLAN, Planned, StateRecord, decode_state
from tests.unit.spark_connector.sink.commit.model_cluster import Cluster
from tests.unit.spark_connector.sink.commit.sink_history import Checkpoint, Run

BATCHES = 4
ROWS = 40
OPAQUE = Planned("t", '{"logOffset":3}', "1700000000000")
"""Of a source of files, whose offset only counts: every batch of one number has the same."""
PLANS = [None, UNKNOWN_PLAN, Planned("t", ""), OPAQUE._replace(time="")]
_BACKUPS = [each for each in itertools.product(range(BATCHES + 1), repeat=2) if each[1] <= each[0]]


def written(version: int, planned: Planned | None = None) -> tuple[Cluster, Checkpoint]:
    """A cluster and a checkpoint after some batches of ten rows."""
    cluster, checkpoint = Cluster(version), Checkpoint()
    first = Run(cluster, checkpoint, "p", planned=planned)
    for batch in range(BATCHES):
        first.run_batch((batch + 1) * 10)
    return cluster, checkpoint


def go_on(cluster: Cluster, checkpoint: Checkpoint, step: int, planned: Planned | None = None) -> bool:
    """Run the query to the end of its rows; whether it was refused."""
    run = Run(cluster, checkpoint, "r", planned=planned)
    try:
        for _ in range(ROWS):
            position = checkpoint.offsets.get(checkpoint.next_batch - 1, 0)
            if position >= ROWS + 20:
                return False
            run.run_batch(min(position + step, ROWS + 20))
    except CheckpointRewound:
        return True
    raise AssertionError("it did not come to an end")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("step", [10, 5, 60])
@pytest.mark.parametrize("planned", PLANS)
@pytest.mark.parametrize(("offsets", "commits"), _BACKUPS)
def test_restored_checkpoint_neither_loses_nor_repeats_rows(
    offsets: int, commits: int, planned: Planned | None, step: int, version: int
) -> None:
    """Batches that are planned anew under decided numbers may have other rows than those that were decided."""
    cluster, checkpoint = written(version, planned)
    refused = go_on(cluster, checkpoint.restored(offsets, commits), step, planned)
    visible = sorted(cluster.visible)
    assert len(visible) == len(set(visible)), "doubled"
    assert refused or visible == list(range(ROWS + 20)), "lost"
    assert not refused or visible == list(range(ROWS)), "a refused batch has written"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("planned", PLANS)
def test_decided_batch_that_comes_again_unchanged_is_skipped(planned: Planned | None, version: int) -> None:
    cluster, checkpoint = written(version, planned)
    assert not go_on(cluster, checkpoint.restored(BATCHES, BATCHES - 1), 20, planned)
    assert sorted(cluster.visible) == list(range(ROWS + 20))


@pytest.mark.parametrize("planned", PLANS[1:])
def test_other_rows_under_a_decided_number_are_refused_though_the_plan_is_equal(planned: Planned) -> None:
    """The checkpoint is one batch behind, and as many rows come as the decided batch had."""
    cluster, checkpoint = written(2, planned)
    rewound = checkpoint.restored(BATCHES - 1, BATCHES - 1)
    rewound.offsets[BATCHES - 2] += 5
    advice = "Restore the newest checkpoint; .*failOnDifferentRows=false.*needs a txnAppId of its own"
    with pytest.raises(CheckpointRewound, match=rf"with 10 rows of digest \w+ and not with 10 rows .*{advice}"):
        Run(cluster, rewound, "r", planned=planned).run_batch(ROWS + 5)
    assert sorted(cluster.visible) == list(range(ROWS))


def test_other_rows_are_skipped_without_fail_on_difference() -> None:
    """Rows that are drawn anew each time: the batch stays as it was decided, and the query goes on."""
    cluster, checkpoint = written(2, UNKNOWN_PLAN)
    again = checkpoint.restored(BATCHES, BATCHES - 1)
    again.offsets[BATCHES - 1] += 7
    Run(cluster, again, "r", planned=UNKNOWN_PLAN, fail_on_difference=False).run_batch(ROWS)
    assert sorted(cluster.visible) == list(range(ROWS))
    assert again.commits == set(range(BATCHES))


def test_batch_with_the_planning_time_of_the_decided_one_is_skipped_whatever_its_rows() -> None:
    cluster, checkpoint = written(2, OPAQUE)
    again = checkpoint.restored(BATCHES, BATCHES - 1)
    again.offsets[BATCHES - 1] += 7
    with pytest.raises(CheckpointRewound):
        Run(cluster, again, "r", planned=OPAQUE._replace(time="1700000000001")).run_batch(ROWS)
    Run(cluster, again, "s", planned=OPAQUE).run_batch(ROWS)
    assert sorted(cluster.visible) == list(range(ROWS))


def test_batch_whose_offsets_cannot_be_read_is_not_taken_for_the_decided_one() -> None:
    """The checkpoint is given in another way since: nothing tells whether it was rewound, too."""
    cluster, checkpoint = written(2)
    with pytest.raises(CheckpointRewound, match=r"up to \[40\], and where it ends in this checkpoint cannot be read"):
        Run(cluster, checkpoint.restored(BATCHES, BATCHES - 1), "r", planned=UNKNOWN_PLAN).run_batch(ROWS)


def test_refusal_of_a_rewound_batch_names_the_decided_batch_and_its_end() -> None:
    cluster, checkpoint = written(2)
    with pytest.raises(CheckpointRewound, match=r"batch 1 of q is not written: batch 3 is decided .*up to \[40\]"):
        Run(cluster, checkpoint.restored(1, 1), "r").run_batch(20)
    with pytest.raises(CheckpointRewound, match=r"batch 3 of q .* it is decided up to \[40\] and not \[50\]"):
        Run(cluster, checkpoint.restored(3, 3), "r").run_batch(50)


def test_copied_checkpoint_does_not_take_anothers_batch_for_its_own() -> None:
    """A second query that begins with a copy, and writes the same rows to another topic."""
    cluster, checkpoint = written(2)
    copied = checkpoint.restored(BATCHES, BATCHES - 1)
    with pytest.raises(CheckpointRewound, match="it is decided for topic t and not other"):
        Run(cluster, copied, "r", topic="other").run_batch(ROWS)


@pytest.mark.parametrize("version", [1, 2])
def test_transactional_ids_that_expired_after_the_commit_are_not_lost(version: int) -> None:
    """Spark was killed before its commit log had the batch, and started again after a week."""
    cluster, checkpoint = written(version)
    for name in [name for name in cluster.ids if not name.endswith(".driver")]:
        del cluster.ids[name]
    assert not go_on(cluster, checkpoint.restored(BATCHES, BATCHES - 1), 20)
    assert sorted(cluster.visible) == list(range(ROWS + 20))


def test_record_of_the_former_format_without_its_transactional_ids_is_refused() -> None:
    """Their outcome is not known; the message has the remedy."""
    cluster, checkpoint = written(2)
    cluster.states["s"] = (
        b'{"v":1,"generation":1,"query":"q","batch":3,"driver":[1,9],"transactions":[[".1.x.0",77,0,2]]}'
    )
    with pytest.raises(TransactionsLost, match=r"s\.1\.x\.0 \(unknown\).*failOnDataLoss=false"):
        Run(cluster, checkpoint.restored(BATCHES, BATCHES - 1), "r").run_batch(ROWS)


def test_records_of_the_former_format_are_read() -> None:
    value = b'{"v":1,"generation":3,"query":"q","batch":41,"driver":[5,6],"transactions":[[".3.ab.0",7,8,2]]}'
    state = decode_state("s", value)
    assert (state.batch, state.settled, state.planned.topic) == (41, False, "")
    assert state.encode() == value
    settled = state.when_settled(Driver(5, 7), 2)
    assert decode_state("s", settled.encode()) == settled
    assert settled.content is None
    newer = replace(settled, planned=OPAQUE, run="r", content=Content(10, 2**64 - 1))
    assert decode_state("s", newer.encode()) == newer
    assert StateRecord(sink="s").decides("q", 0) is False
