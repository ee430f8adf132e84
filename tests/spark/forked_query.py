"""A query that writes to a topic in Spark's order of calls, each in a forked process as Spark's are, without a JVM.

A run takes a fraction of a second, so tests go through every point at which one of these processes can crash.
"""

import json
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from oncelog.spark_connector.process_client import close_process_clients
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.task import TaskOutcome
from oncelog.spark_connector.sink.sink_name import with_sink_name
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import WriteOptions, stream_write_options
from tests.spark.crashing_session import Crash, CrashingSession
from tests.spark.other_end import OtherEnd

BATCHES: Final = 3
ROWS_IN_BATCH: Final = 40
PARTITIONS: Final = 3
MOST_TASKS: Final = 5
"""Of a batch."""
_QUERY: Final = "a query"


class Killed(Exception):
    """The child did not come back."""


class Child:
    """A forked process that does one thing, and tells how it ended."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._reading, writing = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._reading)
            try:
                response: tuple[bool, object] = True, work()
            except BaseException as error:
                response = False, f"{type(error).__name__}: {error}"
            with open(writing, "wb") as pipe:
                pickle.dump(response, pipe)
            os._exit(0)
        os.close(writing)

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status

    def result(self) -> Any:
        """What it returned. Raises ``Killed``, and ``RuntimeError`` for what it raised."""
        with open(self._reading, "rb") as pipe:
            said = pipe.read()
        os.waitpid(self.process, 0)
        if not said:
            raise Killed
        succeeded, value = pickle.loads(said)
        if not succeeded:
            raise RuntimeError(value)
        return value


def piece_of(rows: Sequence[int]) -> pa.RecordBatch:
    """What Spark hands over at a time."""
    keys, values = [b"%d" % row for row in rows], [b"v%d" % row for row in rows]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


class Query:
    """What Spark does with a sink, and its commit log."""

    def __init__(self, end: OtherEnd, topic: str, directory: Path, point: str, action: str, seed: int) -> None:
        self.end = end
        self.topic = topic
        self.rng = Random(seed)
        self.crash = Crash(point, action, str(directory / "crashed"), "")
        self.crashed = directory / "crashed"
        self.query_id = f"query-{topic}"
        (directory / "metadata").write_text(json.dumps({"id": self.query_id}))
        options = stream_write_options(
            {
                "kafka.bootstrap.servers": end.address,
                "topic": topic,
                "checkpointlocation": str(directory),
                "kafka.compression.type": self.rng.choice(["none", "lz4", "zstd"]),
            },
            [("key", "binary"), ("value", "binary")],
        )
        self.options: WriteOptions = with_sink_name(options)
        self.abort_is_called = True
        self.committed = -1
        self.failures: list[str] = []

    def session(self) -> CrashingSession:
        return CrashingSession(self.options, self.crash)

    def start(self) -> bool:
        """One run, to the end or to its first failure."""
        try:
            while self.committed < BATCHES - 1:
                self._run_batch(self.committed + 1)
                self.committed += 1
        except (Killed, RuntimeError) as error:
            self.failures.append(repr(error))
            return False
        return True

    def recover(self) -> None:
        for _ in range(5):
            if self.start():
                return
        raise AssertionError(self.failures)

    def _run_batch(self, batch: int) -> None:
        sink = self.options.sink
        assert sink is not None
        permit: Permit = Child(lambda: self.session().begin(sink)).result()
        outcomes: list[TaskOutcome] = []
        try:
            for share in self.layout(batch):
                outcomes.append(self.run_task(permit, batch, share))
            Child(lambda: self.session().commit(outcomes, batch)).result()
        except (Killed, RuntimeError):
            if self.abort_is_called:
                Child(lambda: self.session().abort(outcomes, sink, batch)).result()
            raise

    def layout(self, batch: int) -> list[list[int]]:
        shares: list[list[int]] = [[] for _ in range(self.rng.randint(2, MOST_TASKS))]
        for row in range(batch * ROWS_IN_BATCH, (batch + 1) * ROWS_IN_BATCH):
            self.rng.choice(shares).append(row)
        return shares

    def run_task(self, permit: Permit, batch: int, share: Sequence[int]) -> TaskOutcome:
        for _ in range(3):
            try:
                outcome: TaskOutcome = self.attempt(permit, batch, share).result()
                return outcome
            except Killed:
                continue
        raise RuntimeError("a task was killed for good")

    def attempt(self, permit: Permit, batch: int, share: Sequence[int]) -> Child:
        """A task's process; the rows come in two pieces."""
        half = len(share) // 2
        pieces = [piece_of(share[:half]), piece_of(share[half:])]
        return Child(lambda: self.session().write(permit, self.query_id, batch, pieces))

    def check(self) -> None:
        self.end.wait_until_ended(self.topic)
        records = [each for partition in self.end.read(self.topic).values() for each in partition]
        assert sorted(int(each.key or b"") for each in records) == list(range(BATCHES * ROWS_IN_BATCH))
        assert all(each.value == b"v" + (each.key or b"") for each in records)
        listed = self.end.client.run(self.end.client.admin.list_transactions(states=["Ongoing"]))
        assert not [each.transactional_id for each in listed]


def warm_up(address: str, topic: str) -> None:
    """Have the codecs compiled before anybody is forked; ``topic`` is created."""
    with OtherEnd(address) as end:
        end.create(topic, 1)
    options = {"kafka.bootstrap.servers": address, "topic": topic, "transactionalidprefix": topic}
    session = SinkSession(stream_write_options(options, [("value", "binary")]))
    permit = session.begin(topic)
    rows = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
    session.commit([session.write(permit, _QUERY, 0, [rows]) for _ in range(2)], 0)
    close_process_clients()
