"""A sink that goes on with what a former release has written under another name."""

from dataclasses import replace

import pytest

from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.state_record import StateRecord, decode_state
from oncelog.spark_connector.sink.write_options import digest
from tests.unit.spark_connector.sink.commit.model_cluster import Cluster
from tests.unit.spark_connector.sink.commit.sink_history import Checkpoint, Run

LOCATION = "/checkpoints/orders"
QUERY = "8c7a1f5e-0000-4000-8000-000000000000"
COMMITTERS_TURNS = 40


def as_formerly_written(cluster: Cluster) -> None:
    """Take out of the records what former releases did not write; their lists of transactions stayed."""
    for name, value in cluster.states.items():
        state = decode_state(name, value)
        cluster.states[name] = replace(
            state, settled_by=None, content=None, planned=StateRecord(sink=name).planned
        ).encode()


def former_of(location: str) -> FormerNames:
    return FormerNames(query=QUERY, names=(digest(location),), was_named_by_location=True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("location", [LOCATION, LOCATION + "/", "/moved"])
@pytest.mark.parametrize("calls", [*range(COMMITTERS_TURNS), None])
def test_stream_continues_after_the_decision_of_a_former_release(
    calls: int | None, location: str, version: int
) -> None:
    """Killed after any of the committer's requests, with the checkpoint moved or spelt otherwise at the same time."""
    cluster, checkpoint = Cluster(version), Checkpoint(QUERY)
    formerly = Run(cluster, checkpoint, "p", sink=digest(LOCATION))
    formerly.run_batch(10)
    formerly.run_batch(20, calls=calls, log=False)
    as_formerly_written(cluster)
    now = Run(cluster, checkpoint, "r", sink=QUERY, former=former_of(location))
    now.run_batch(20)
    now.run_batch(30)
    assert sorted(cluster.visible) == list(range(30))
    assert not cluster.open_ids


def test_former_sink_is_looked_for_once() -> None:
    cluster, checkpoint = Cluster(2), Checkpoint(QUERY)
    Run(cluster, checkpoint, "p", sink=digest(LOCATION)).run_batch(10)
    now = Run(cluster, checkpoint, "r", sink=QUERY, former=former_of(LOCATION))
    now.run_batch(20)
    epoch = cluster.ids[f"{digest(LOCATION)}.driver"].epoch
    now.run_batch(30)
    assert cluster.ids[f"{digest(LOCATION)}.driver"].epoch == epoch


def test_sinks_of_other_queries_are_left_alone() -> None:
    """Also one with a prefix whose checkpoint was copied: it has the same query's id, and is at work."""
    cluster = Cluster(2)
    for name, query in ((digest("/other"), "other"), ("prefix", QUERY)):
        Run(cluster, Checkpoint(query), "p", sink=name).run_batch(10)
    epochs = {name: known.epoch for name, known in cluster.ids.items()}
    Run(cluster, Checkpoint(QUERY), "r", sink=QUERY, former=former_of(LOCATION)).run_batch(20)
    assert {name: cluster.ids[name].epoch for name in epochs} == epochs


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("calls", [*range(COMMITTERS_TURNS), None])
def test_application_continues_after_the_decision_under_its_prefix(calls: int | None, version: int) -> None:
    cluster, checkpoint = Cluster(version), Checkpoint("app")
    formerly = Run(cluster, checkpoint, "p", sink="prefix")
    formerly.run_batch(10)
    formerly.run_batch(20, calls=calls, log=False)
    as_formerly_written(cluster)
    former = FormerNames(query="app", names=("prefix",), was_named_by_location=False)
    Run(cluster, checkpoint, "r", sink="prefix.0123456789abcdef", former=former).run_batch(20)
    assert sorted(cluster.visible) == list(range(20))
    assert not cluster.open_ids


def test_applications_with_one_prefix_do_not_erase_each_others_decision() -> None:
    """Each is killed before its version is logged, and tries it again."""
    cluster = Cluster(2)
    checkpoints = {name: Checkpoint(name, offsets={-1: start}) for name, start in (("a", 0), ("b", 10))}

    def write(name: str, until: int, *, log: bool) -> None:
        former = FormerNames(query=name, names=("prefix",), was_named_by_location=False)
        Run(cluster, checkpoints[name], name, sink=f"prefix.{digest(name)}", former=former).run_batch(until, log=log)

    for name, until in (("a", 10), ("b", 20), ("a", 10), ("b", 20)):
        write(name, until, log=False)
    assert sorted(cluster.visible) == list(range(20))
