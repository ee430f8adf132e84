"""The sink in Spark's order of calls, in forked processes as Spark's are, on a real broker: killed at every point.

Without a JVM a run takes a fraction of a second, so this goes through all points, both versions of the transaction
protocol, and Apache Kafka. ``test_sink_kills`` does the same with Spark itself, where there is time for fewer.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from oncelog.spark_connector.process_client import close_process_clients
from oncelog.spark_connector.sink.commit.sink_broker import OpenTransaction, SinkBroker
from tests.spark.crashing_session import CrashingSession, process_of
from tests.spark.forked_query import MOST_TASKS, Child, Query

_CALLS: Final = {
    "prelude": ("init_producer_id", "read_state", "open_transactions", "append_state", "end_driver"),
    "task": ("open_writer", "write", "finish", "read_state"),
    "commit": (
        "read_state",
        "topic_ids",
        "describe",
        "append_state",
        "end_driver",
        "end_tasks",
        "open_transactions",
        "all",
    ),
}
POINTS: Final = tuple(
    f"{phase}/{call}/{when}"
    for phase, calls in _CALLS.items()
    for call in calls
    for when in ("before", "between", "after")
    if (when != "between" or call == "end_tasks") and not (call in ("write", "finish", "all") and when == "before")
)


@pytest.mark.parametrize("point", POINTS)
def test_process_killed_at_any_step_writes_rows_once(make_query: Callable[[str, str, int], Query], point: str) -> None:
    query = make_query(point, "kill-process", 1)
    query.start()
    assert query.crashed.exists()
    query.recover()
    query.check()


@pytest.mark.parametrize(
    "point",
    [f"commit/{each}" for each in ("append_state/after", "end_driver/after", "end_tasks/between", "end_tasks/after")],
)
def test_query_continues_after_the_batches_of_a_former_release(
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


def test_batches_use_the_transactional_ids_of_the_previous_batch(
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
def test_driver_killed_without_an_abort_writes_rows_once(
    make_query: Callable[[str, str, int], Query], point: str
) -> None:
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
def test_committer_that_wakes_late_changes_nothing(make_query: Callable[[str, str, int], Query], point: str) -> None:
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
def test_planner_that_wakes_late_changes_nothing(make_query: Callable[[str, str, int], Query], point: str) -> None:
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
def test_task_that_wakes_late_is_not_part_of_the_batch(
    make_query: Callable[[str, str, int], Query], point: str
) -> None:
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
def test_aborted_batch_stays_aborted_when_a_task_begins_late(
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

    LateTaskSession(query, begin).abort_unnamed([], permit.sink, unreported=2)
    close_process_clients()
    query.end.wait_until_ended(query.topic)
    assert not any(query.end.read(query.topic).values())
