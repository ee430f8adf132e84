"""A state topic that is given more partitions, or created again, under sinks on a real broker, without a JVM."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.spark_connector.process_client import close_process_clients
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import WriteOptions, batch_write_options, stream_write_options
from tests.processes import OncelogProcess
from tests.spark.forked_query import Child, piece_of
from tests.spark.other_end import OtherEnd

ROWS: Final = 10
VERSIONS: Final = 5
APPLICATIONS: Final = ("billing", "orders", "audit", "returns")
SIZES: Final = (1, 3, 16)
Work = Callable[[], Any]


@pytest.fixture(scope="module")
def end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherEnd]:
    with OncelogProcess(tmp_path_factory.mktemp("states")) as process, OtherEnd(process.address) as end:
        yield end
    close_process_clients()


class Saves:
    """Versions of applications, saved by this process, which goes on for ever, or by one that has only started."""

    def __init__(self, end: OtherEnd, new_name: Callable[[str], str], state_partitions: int) -> None:
        self.end = end
        self.topic = end.create(new_name("out"), 2)
        self.state_topic = end.create(new_name("state"), state_partitions, {"cleanup.policy": "compact"})
        self.state_partitions = state_partitions

    def options(self, application: str, version: int) -> WriteOptions:
        given = {
            "kafka.bootstrap.servers": self.end.address,
            "topic": self.topic,
            "stateTopic": self.state_topic,
            "txnAppId": application,
            "txnVersion": str(version),
        }
        return batch_write_options(given, [("key", "binary"), ("value", "binary")], overwrite=False)

    def save(self, application: str, version: int, *, fresh: bool) -> bool:
        """Whether it was written."""
        options = self.options(application, version)
        assert options.sink is not None
        sink = options.sink
        first = (APPLICATIONS.index(application) * VERSIONS + version) * ROWS
        rows = [piece_of(range(first, first + ROWS))]

        def steps() -> bool:
            session = SinkSession(options)
            outcome = session.write(session.begin(sink), application, version, rows)
            session.commit([outcome], version)
            return outcome.transaction is not None

        return bool(Child(steps).result()) if fresh else steps()

    def add_state_partitions(self, count: int) -> None:
        self.state_partitions += count
        grown = self.end.client.run(self.end.client.admin.create_partitions({self.state_topic: self.state_partitions}))
        assert grown == {self.state_topic: None}

    def written(self) -> list[int]:
        self.end.wait_until_ended(self.topic)
        return sorted(int(each.key or b"") for records in self.end.read(self.topic).values() for each in records)


@pytest.mark.parametrize("seed", range(6))
def test_versions_are_saved_once_whenever_state_partitions_are_added(
    end: OtherEnd, new_name: Callable[[str], str], seed: int
) -> None:
    """By processes that know the state topic as it was, and by such that have only started, in any order."""
    rng = Random(seed)
    saves = Saves(end, new_name, rng.choice(SIZES))
    for version in range(VERSIONS):
        for _ in range(rng.randint(1, 3)):
            for application in rng.sample(APPLICATIONS, len(APPLICATIONS)):
                saves.save(application, version, fresh=rng.random() < 0.5)
            if rng.random() < 0.5:
                saves.add_state_partitions(rng.randint(1, 16))
    assert saves.written() == list(range(len(APPLICATIONS) * VERSIONS * ROWS))


def test_old_and_new_processes_find_the_record_in_the_same_partition(
    end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    saves = Saves(end, new_name, 16)
    sinks = {application: saves.options(application, 0).sink or "" for application in APPLICATIONS}
    moved = {each for each in sinks.values() if len({partition_for_key(each.encode(), n) for n in (16, 32)}) > 1}
    assert moved
    for application in APPLICATIONS:
        assert saves.save(application, 1, fresh=False)
    saves.add_state_partitions(16)
    for application in APPLICATIONS:
        assert not saves.save(application, 1, fresh=True)
        assert saves.save(application, 2, fresh=False)
        assert not saves.save(application, 2, fresh=True)
        assert saves.save(application, 3, fresh=True)
        assert not saves.save(application, 3, fresh=False)
    assert len(saves.written()) == len(APPLICATIONS) * 3 * ROWS


class Stream:
    """A stream's sink; each step in a process of its own, as after a pause of a minute."""

    def __init__(self, end: OtherEnd, new_name: Callable[[str], str], checkpoint: Path) -> None:
        self.topic = end.create(new_name("out"), 1)
        self.state_topic = new_name("state")
        self.sink = new_name("sink")
        self.given = {
            "kafka.bootstrap.servers": end.address,
            "topic": self.topic,
            "stateTopic": self.state_topic,
            "transactionalIdPrefix": self.sink,
            "checkpointLocation": str(checkpoint),
        }

    def run_batch(self, batch: int, **more: str) -> None:
        options = stream_write_options(self.given | more, [("key", "binary"), ("value", "binary")])
        rows = [piece_of(range(batch * ROWS, (batch + 1) * ROWS))]
        permit = Child(lambda: SinkSession(options).begin(self.sink)).result()
        outcome = Child(lambda: SinkSession(options).write(permit, "query", batch, rows)).result()
        Child(lambda: SinkSession(options).commit([outcome], batch)).result()


@pytest.mark.parametrize("partitions", [1, 16, 40])
def test_stream_whose_state_topic_was_created_again_is_refused_unless_the_option_allows_it(
    end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path, partitions: int
) -> None:
    stream = Stream(end, new_name, tmp_path)
    stream.run_batch(0)
    stream.run_batch(1)
    end.delete(stream.state_topic)
    end.create(stream.state_topic, partitions, {"cleanup.policy": "compact"})
    for batch in (1, 2):
        with pytest.raises(RuntimeError, match=f"DecisionsMissing.*{stream.state_topic}.*failOnMissingDecisions=false"):
            stream.run_batch(batch)
    stream.run_batch(2, failOnMissingDecisions="false")
    stream.run_batch(2)
    stream.run_batch(3)
    end.wait_until_ended(stream.topic)
    assert sorted(int(each.key or b"") for each in end.read(stream.topic)[0]) == list(range(4 * ROWS))
