"""A sink's record in a state topic that is given more partitions, created again, or emptied."""

import logging

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.batch_commit import commit_batch
from oncelog.spark_connector.sink.commit.prelude import begin_batch
from oncelog.spark_connector.sink.commit.sink_errors import BatchNotDecided, DecisionsMissing
from oncelog.spark_connector.sink.commit.sink_transactions import Driver
from oncelog.spark_connector.sink.commit.state_home import Found, first_home, newest
from oncelog.spark_connector.sink.commit.state_record import Planned, StateRecord
from tests.unit.spark_connector.sink.commit.model_cluster import STATE_TOPIC, Cluster
from tests.unit.spark_connector.sink.commit.sink_history import Checkpoint, Run, broker_of, run

COMMITTERS_TURNS = 40
HOMES = [TopicPartition(STATE_TOPIC, number) for number in range(64)]
GROWTHS = [first_home("s", HOMES[:count]).partition for count in range(1, 9)]


def test_home_of_a_new_sink_changes_as_partitions_are_added() -> None:
    assert len(set(GROWTHS)) > 3


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("calls", [*range(COMMITTERS_TURNS), None])
def test_killed_stream_continues_after_partitions_were_added(calls: int | None, version: int) -> None:
    """Killed after any of the committer's requests, and after each batch that follows partitions are added."""
    cluster, checkpoint = Cluster(version), Checkpoint()
    first = Run(cluster, checkpoint, "p")
    first.run_batch(10)
    first.run_batch(20, calls=calls, log=False)
    for step in range(1, 8):
        cluster.add_state_partitions(1)
        assert len(cluster.state_log) == step + 1
        Run(cluster, checkpoint, f"r{step}").run_batch(20 + 10 * step, log=step % 2 == 0)
    Run(cluster, checkpoint, "last").run_batch(100)
    assert sorted(cluster.visible) == list(range(checkpoint.offsets[max(checkpoint.offsets)]))
    assert not cluster.open_ids
    assert sum("s" in records for records in cluster.state_log) == 1


def test_home_of_a_sink_at_its_first_start_is_by_its_name() -> None:
    cluster = Cluster(2)
    cluster.add_state_partitions(7)
    Run(cluster, Checkpoint(), "p").run_batch(10)
    assert [number for number, records in enumerate(cluster.state_log) if records] == [GROWTHS[7]]


@pytest.mark.parametrize("query", ["q", "another query"])
@pytest.mark.parametrize("log", [True, False])
def test_later_batch_without_a_decision_is_refused_unless_the_option_allows_it(query: str, log: bool) -> None:
    """The state topic was created again, or another query has used the sink's name, while the query was stopped."""
    cluster, checkpoint = Cluster(2), Checkpoint()
    stopped = Run(cluster, checkpoint, "p")
    stopped.run_batch(10)
    stopped.run_batch(20, log=log)
    cluster.replace_state_topic()
    if query != "q":
        Run(cluster, Checkpoint(query, offsets={-1: 900}), "o").run_batch(910)
    visible = list(cluster.visible)
    with pytest.raises(DecisionsMissing, match=rf"batch {1 + log} of query q .*{STATE_TOPIC}.*failOnMissingDecisions"):
        Run(cluster, checkpoint, "r").run_batch(30)
    assert cluster.visible == visible
    Run(cluster, checkpoint, "r", requires_decisions=False).run_batch(30)
    Run(cluster, checkpoint, "r").run_batch(40)
    assert set(range(40)) <= set(cluster.visible)


def test_first_batch_of_a_query_needs_no_decision() -> None:
    cluster = Cluster(2)
    Run(cluster, Checkpoint("former"), "p").run_batch(10)
    Run(cluster, Checkpoint("q", offsets={-1: 10}), "p").run_batch(20)
    assert sorted(cluster.visible) == list(range(20))


@pytest.mark.parametrize("done", [0, 1, 2])
def test_batch_whose_sinks_record_vanishes_is_not_decided(done: int) -> None:
    cluster, checkpoint = Cluster(2), Checkpoint()
    before = Run(cluster, checkpoint, "p")
    for batch in range(done):
        before.run_batch(10 * batch + 10)
    outcomes = before.run_tasks(done, range(10 * done, 10 * done + 10), 2)
    cluster.replace_state_topic()
    with pytest.raises(BatchNotDecided, match=f"vanished from the state topic {STATE_TOPIC}"):
        run(commit_batch(broker_of(cluster), outcomes, done, Planned("t", "[30]", names_rows=True)))
    assert sorted(cluster.visible) == list(range(10 * done))
    assert not cluster.open_ids


def test_driver_of_a_used_sink_without_a_record_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A version of an application may have any number: so nothing is refused."""
    cluster, checkpoint = Cluster(2), Checkpoint()
    with caplog.at_level(logging.WARNING):
        Run(cluster, checkpoint, "p").run_batch(10)
        assert not caplog.records
        cluster.replace_state_topic()
        run(begin_batch(broker_of(cluster), "s"))
    assert "no partition of its state topic states has a record" in caplog.text


def record(query: str, batch: int, epoch: int, *, generation: int = 1, producer_id: int = 7) -> StateRecord:
    decided_by = (producer_id, epoch)
    state = StateRecord(sink="s", generation=generation, query=query, batch=batch, decided_by=decided_by)
    return state.when_settled(Driver(producer_id, epoch), 1)


def found(*states: StateRecord) -> Found | None:
    return newest(Found(state, home) for state, home in zip(states, HOMES, strict=False))


@pytest.mark.parametrize(
    ("states", "index"),
    [
        ([record("q", 7, 30), record("q", 8, 9)], 1),
        ([record("q", 8, 9), record("q", 7, 30)], 0),
        ([record("q", 7, 30), record("q", 7, 32)], 1),
        ([record("old", 99, 30), record("q", 3, 40)], 1),
        ([record("q", 3, 40), record("old", 99, 30)], 0),
        ([record("q", 3, 1, producer_id=9), record("q", 4, 1)], 1),
        ([StateRecord(sink="s", generation=4), record("q", 0, 3)], 1),
    ],
)
def test_newest_of_several_records_counts(states: list[StateRecord], index: int) -> None:
    """It hashed among the partitions that there were: a sink may have a record in more than one."""
    counts = found(*states)
    assert counts is not None
    assert counts.home == HOMES[index]
    assert counts.state is not None
    assert (counts.state.query, counts.state.batch) == (states[index].query, states[index].batch)
    assert counts.state.generation == max(each.generation for each in states)


def test_newest_of_no_records_is_none() -> None:
    assert found() is None
