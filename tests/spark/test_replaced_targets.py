"""A target that is deleted and created again in the middle of a batch: the new topic gets all of the batch, or nothing.

The steps of a batch are forked processes as Spark's are, each of which has known the topic for a different time.
"""

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.spark_connector.sink.commit.task import TaskOutcome
from tests.spark.forked_query import PARTITIONS, ROWS_IN_BATCH, Child, Query, piece_of

MakeQuery = Callable[[str, str, int], Query]


def replace_target(query: Query) -> None:
    """Under the same name."""
    query.end.delete(query.topic)
    query.end.create(query.topic, PARTITIONS)


def one_partition_first() -> list[list[int]]:
    """Two tasks of batch 0. The first piece of the first is of partition 0, and the second of others: as their numbers
    begin at 0, a partition that has not had the ones before takes them."""
    homes: dict[bool, list[int]] = {True: [], False: []}
    for row in range(ROWS_IN_BATCH):
        homes[partition_for_key(b"%d" % row, PARTITIONS) == 0].append(row)
    length = min(map(len, homes.values()))
    return [homes[True][:length] + homes[False][:length], homes[True][length:] + homes[False][length:]]


def commit(query: Query, outcomes: Sequence[TaskOutcome]) -> None:
    """As Spark does it: an ``abort`` comes after a commit that has failed."""
    sink = query.options.sink
    assert sink is not None
    try:
        Child(lambda: query.session().commit(outcomes, 0)).result()
    except RuntimeError:
        Child(lambda: query.session().abort(outcomes, sink, 0)).result()
        raise


def check_refused(query: Query, outcomes: Sequence[TaskOutcome]) -> None:
    """And nothing of the batch is in the new topic; the next run of the query writes all of it there."""
    with pytest.raises(RuntimeError, match=f"BatchNotDecided: .*{query.topic} was deleted and created again"):
        commit(query, outcomes)
    query.end.wait_until_ended(query.topic)
    assert not any(query.end.read(query.topic).values())
    query.recover()
    query.check()


@pytest.mark.kills
def test_target_replaced_between_two_tasks_gets_no_part_of_the_batch(make_query: MakeQuery) -> None:
    query = make_query("never", "raise", 11)
    permit = Child(lambda: query.session().begin(query.options.sink or "")).result()
    first, *others = query.layout(0)
    outcomes = [query.run_task(permit, 0, first)]
    replace_target(query)
    outcomes += [query.run_task(permit, 0, share) for share in others]
    check_refused(query, outcomes)


@pytest.mark.kills
def test_target_replaced_before_the_commit_gets_the_batch_when_it_is_run_again(make_query: MakeQuery) -> None:
    query = make_query("never", "raise", 12)
    permit = Child(lambda: query.session().begin(query.options.sink or "")).result()
    outcomes = [query.run_task(permit, 0, share) for share in query.layout(0)]
    replace_target(query)
    check_refused(query, outcomes)


@pytest.mark.kills
def test_target_replaced_between_two_rows_of_a_task_gets_all_rows_of_it_or_none(
    make_query: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that writes by topic id fails, and is tried again; of one that writes by name, the commit notices."""
    monkeypatch.setattr("oncelog.spark_connector.sink.arrow_row_writer._ROWS_AT_ONCE", 1)
    query = make_query("never", "raise", 13)
    permit = Child(lambda: query.session().begin(query.options.sink or "")).result()
    share, rest = one_partition_first()
    reading, writing = os.pipe()

    def pieces() -> Iterator[pa.RecordBatch]:
        yield piece_of(share[: len(share) // 2])
        os.read(reading, 1)
        yield piece_of(share[len(share) // 2 :])

    attempt = Child(lambda: query.session().write(permit, query.query_id, 0, pieces()))
    query.end.wait_until_written(query.topic)
    replace_target(query)
    os.write(writing, b"!")
    try:
        outcome = attempt.result()
    except RuntimeError as error:
        refusal = str(error)
        if not refusal.startswith(f"TopicReplaced: {query.topic} was deleted and created again"):
            raise
        commit(query, [query.run_task(permit, 0, each) for each in (share, rest)])
        query.committed = 0
        query.recover()
        query.check()
    else:
        check_refused(query, [outcome, query.run_task(permit, 0, rest)])
    finally:
        os.close(reading)
        os.close(writing)
