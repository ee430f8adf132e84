"""The sink in Spark's order of calls, in forked processes as Spark's are, on a real broker: killed at every point.

Without a JVM a run takes a fraction of a second, so this goes through all points, both versions of the transaction
protocol, and Apache Kafka. ``test_sink_kills`` does the same with Spark itself, where there is time for fewer.
"""

import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from clients.admin.features import FeatureUpdate
from spark_connector.process_client import close_process_clients
from spark_connector.sink.prelude import Permit
from spark_connector.sink.sink_broker import OpenTransaction, SinkBroker
from spark_connector.sink.task import TaskOutcome
from spark_connector.sink_name import with_sink_name
from spark_connector.sink_session import SinkSession
from spark_connector.write_options import WriteOptions, stream_write_options
from tests.processes import KafkaProcess, OncelogProcess
from tests.spark.crashing_session import Crash, CrashingSession, process_of
from tests.spark.other_end import OtherEnd

BATCHES: Final = 3
ROWS_IN_BATCH: Final = 40
MOST_TASKS: Final = 5
"""Of a batch."""
QUERY: Final = "a query"
_CALLS: Final = {
    "prelude": ("init_producer_id", "read_state", "open_transactions", "append_state", "end_driver"),
    "task": ("open_writer", "write", "finish", "read_state"),
    "commit": ("read_state", "describe", "append_state", "end_driver", "end_tasks", "open_transactions", "all"),
}
POINTS: Final = tuple(
    f"{phase}/{call}/{when}"
    for phase, calls in _CALLS.items()
    for call in calls
    for when in ("before", "between", "after")
    if (when != "between" or call == "end_tasks") and not (call in ("write", "finish", "all") and when == "before")
)


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
                answer: tuple[bool, object] = True, work()
            except BaseException as error:
                answer = False, f"{type(error).__name__}: {error}"
            with open(writing, "wb") as pipe:
                pickle.dump(answer, pipe)
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
        pieces = [
            pa.record_batch(
                {
                    "key": pa.array([b"%d" % row for row in piece], pa.binary()),
                    "value": pa.array([b"v%d" % row for row in piece], pa.binary()),
                }
            )
            for piece in (share[:half], share[half:])
        ]
        return Child(lambda: self.session().write(permit, self.query_id, batch, pieces))

    def check(self) -> None:
        self.end.wait_until_ended(self.topic)
        records = [each for partition in self.end.read(self.topic).values() for each in partition]
        assert sorted(int(each.key or b"") for each in records) == list(range(BATCHES * ROWS_IN_BATCH))
        assert all(each.value == b"v" + (each.key or b"") for each in records)
        listed = self.end.client.run(self.end.client.admin.list_transactions(states=["Ongoing"]))
        assert not [each.transactional_id for each in listed]


def warm_up(address: str) -> None:
    """Have the codecs compiled before anybody is forked."""
    with OtherEnd(address) as end:
        topic = end.create("warm-up", 1)
    options = {"kafka.bootstrap.servers": address, "topic": topic, "transactionalidprefix": "warm-up"}
    session = SinkSession(stream_write_options(options, [("value", "binary")]))
    permit = session.begin("warm-up")
    rows = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
    session.commit([session.write(permit, QUERY, 0, [rows]) for _ in range(2)], 0)
    close_process_clients()


@pytest.fixture(scope="module", params=["2", "1", "kafka"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own, with one state partition for all sinks; ours with either version of the protocol."""
    directory = tmp_path_factory.mktemp(f"sink-{request.param}")
    if request.param == "kafka":
        process: KafkaProcess = request.getfixturevalue("kafka")
        warm_up(process.address)
        yield process.address
        return
    with OncelogProcess(directory) as own:
        with OtherEnd(own.address) as end:
            end.create("__spark_sink_state", 1, {"cleanup.policy": "compact"})
            if request.param == "1":
                level = FeatureUpdate(1, allow_downgrade=True)
                assert end.client.run(end.client.admin.update_features({"transaction.version": level})) == {
                    "transaction.version": None
                }
        warm_up(own.address)
        yield own.address


@pytest.fixture
def make_query(
    address: str, new_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[[str, str, int], Query]]:
    with OtherEnd(address) as end:
        yield lambda point, action, seed: Query(end, end.create(new_name("out"), 3), tmp_path, point, action, seed)


@pytest.mark.parametrize("point", POINTS)
def test_a_process_is_killed(make_query: Callable[[str, str, int], Query], point: str) -> None:
    query = make_query(point, "kill-process", 1)
    query.start()
    assert query.crashed.exists()
    query.recover()
    query.check()


@pytest.mark.parametrize(
    "point",
    [f"commit/{each}" for each in ("append_state/after", "end_driver/after", "end_tasks/between", "end_tasks/after")],
)
def test_a_query_goes_on_from_what_a_former_release_has_written(
    make_query: Callable[[str, str, int], Query], point: str
) -> None:
    """That named the sink after the checkpoint's location, and was killed in the middle of a commit."""
    query = make_query(point, "kill-process", 8)
    query.abort_is_called = False
    now = query.options
    assert now.former is not None
    query.options = replace(now, sink=now.former.names[0], former=None)
    query.start()
    assert query.crashed.exists()
    query.options = now
    query.recover()
    query.check()


def test_every_batch_has_the_transactional_ids_of_the_one_before(
    make_query: Callable[[str, str, int], Query],
) -> None:
    """Each step is in a process of its own here, as with Spark where a trigger is longer than a minute."""
    query = make_query("never", "raise", 7)
    query.recover()
    query.check()
    listed = query.end.client.run(query.end.client.admin.list_transactions())
    prefix = f"{query.options.sink}."
    ids = {each.transactional_id.removeprefix(prefix) for each in listed if each.transactional_id.startswith(prefix)}
    tasks = {tuple(each.split(".")) for each in ids - {"driver"}}
    assert {generation for generation, _, _ in tasks} == {"1"}
    assert len(tasks) <= MOST_TASKS, tasks


@pytest.mark.kills
@pytest.mark.parametrize("point", [each for each in POINTS if not each.startswith("task")])
def test_a_driver_is_killed_and_nobody_aborts(make_query: Callable[[str, str, int], Query], point: str) -> None:
    """As with the driver's machine: no ``abort`` comes after it."""
    query = make_query(point, "kill-process", 2)
    query.abort_is_called = False
    query.start()
    assert query.crashed.exists()
    query.recover()
    query.check()


@pytest.mark.kills
@pytest.mark.parametrize(
    "point", [each for each in POINTS if each.startswith("commit") and not each.endswith("all/after")]
)
def test_a_committer_wakes_late(make_query: Callable[[str, str, int], Query], point: str) -> None:
    """It is stopped; another driver goes on to the end; then it goes on, too, and aborts where Spark would have it."""
    query = make_query(point, "stop-process", 3)
    sink = query.options.sink
    assert sink is not None
    permit = Child(lambda: query.session().begin(sink)).result()
    outcomes = [query.run_task(permit, 0, share) for share in query.layout(0)]
    zombie = Child(lambda: query.session().commit(outcomes, 0))
    zombie.wait_until_stopped()
    query.recover()
    query.check()
    os.kill(process_of(query.crashed), signal.SIGCONT)
    try:
        zombie.result()
    except RuntimeError:
        Child(lambda: query.session().abort(outcomes, sink, 0)).result()
    query.check()


@pytest.mark.kills
@pytest.mark.parametrize("point", [each for each in POINTS if each.startswith("prelude")])
def test_a_planner_wakes_late(make_query: Callable[[str, str, int], Query], point: str) -> None:
    """Then its tasks run, too, and its commit."""
    query = make_query(point, "stop-process", 4)
    sink = query.options.sink
    assert sink is not None
    zombie = Child(lambda: query.session().begin(sink))
    zombie.wait_until_stopped()
    query.recover()
    query.check()
    os.kill(process_of(query.crashed), signal.SIGCONT)
    try:
        permit = zombie.result()
        outcomes = [query.run_task(permit, 0, share) for share in query.layout(0)]
        try:
            Child(lambda: query.session().commit(outcomes, 0)).result()
        except RuntimeError:
            Child(lambda: query.session().abort(outcomes, sink, 0)).result()
    except RuntimeError as error:
        refusal = str(error)
        if not refusal.startswith(("SinkFenced", "BatchNotDecided", "SupersededTask", "CheckpointRewound")):
            raise
    query.check()


@pytest.mark.kills
@pytest.mark.parametrize("point", [each for each in POINTS if each.startswith("task")])
def test_a_task_wakes_late(make_query: Callable[[str, str, int], Query], point: str) -> None:
    """Another attempt was faster, and its batch is over: nothing of the late one is seen, or stays open."""
    query = make_query(point, "stop-process", 5)
    sink = query.options.sink
    assert sink is not None
    permit = Child(lambda: query.session().begin(sink)).result()
    shares = query.layout(0)
    zombie = query.attempt(permit, 0, max(shares, key=len))
    zombie.wait_until_stopped()
    outcomes = [query.run_task(permit, 0, share) for share in shares]
    Child(lambda: query.session().commit(outcomes, 0)).result()
    query.committed = 0
    os.kill(process_of(query.crashed), signal.SIGCONT)
    try:
        zombie.result()
    except RuntimeError as error:
        query.failures.append(str(error))
    listed = query.end.client.run(query.end.client.admin.list_transactions(states=["Ongoing"]))
    assert not [each.transactional_id for each in listed]
    query.recover()
    query.check()


class LateTaskSession(CrashingSession):
    """When it has looked for open transactions once, a task begins one."""

    def __init__(self, query: Query, begin: Callable[[], object]) -> None:
        self._begin: Callable[[], object] | None = begin
        super().__init__(query.options, query.crash)

    def make_broker(self) -> SinkBroker:
        broker = super().make_broker()
        look = broker.open_transactions

        async def look_and_begin(prefix: str) -> list[OpenTransaction]:
            found = await look(prefix)
            begin, self._begin = self._begin, None
            if begin is not None:
                begin()
            return found

        broker.open_transactions = look_and_begin  # type: ignore[method-assign]
        return broker


@pytest.mark.kills
def test_a_batch_that_was_taken_back_stays_so_when_a_task_begins_late(
    make_query: Callable[[str, str, int], Query],
) -> None:
    """A batch that is tried once has no next prelude which would end what its tasks have left open."""
    query = make_query("task/open_writer/before", "stop-process", 6)
    permit = Child(lambda: query.session().begin_unnamed()).result()
    late = query.attempt(permit, 0, query.layout(0)[0])
    late.wait_until_stopped()

    def begin() -> None:
        os.kill(process_of(query.crashed), signal.SIGCONT)
        assert late.result().transaction is not None

    LateTaskSession(query, begin).abort_unnamed([], permit.sink, untold=2)
    close_process_clients()
    query.end.wait_until_ended(query.topic)
    assert not any(query.end.read(query.topic).values())
