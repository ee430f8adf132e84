"""A query's history on the modelled cluster, step by step: Spark's logs of a checkpoint, and the sink's calls in order.

Unlike ``model_spark`` nothing happens by chance, and what a batch is planned from matters: an entry of the offset log
says which rows it has, and one that is gone is planned anew.
"""

from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oncelog.spark_connector.sink.commit.batch_commit import commit_batch
from oncelog.spark_connector.sink.commit.batch_content import Content
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.prelude import begin_batch
from oncelog.spark_connector.sink.commit.slot_pool import SlotPool
from oncelog.spark_connector.sink.commit.state_record import Planned
from oncelog.spark_connector.sink.commit.task import TaskOutcome, write_rows
from tests.unit.spark_connector.sink.commit.model_cluster import Cluster, Fate, ModelBroker

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """To its end, alone."""
    while True:
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def kill_after(work: Coroutine[Any, Any, Any], turns: int) -> None:
    """Go on for so many turns, or to the end; then nothing of it happens any more."""
    try:
        for _ in range(turns):
            work.send(None)
    except StopIteration:
        return
    work.close()


def digest(rows: Sequence[int]) -> Content:
    """Of rows that are numbers."""
    return Content(len(rows), sum(row**3 + 1 for row in rows))


def broker_of(cluster: Cluster) -> ModelBroker:
    """A process's broker that responds to everything."""
    return ModelBroker(cluster, lambda: Fate.RESPONDED)


@dataclass
class Checkpoint:
    """Spark's logs: where each batch ends, and which batches are committed."""

    query: str = "q"
    offsets: dict[int, int] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def copy(self) -> "Checkpoint":
        return Checkpoint(self.query, dict(self.offsets), set(self.commits))

    def restored(self, offsets: int, commits: int) -> "Checkpoint":
        """As a backup has it: only so many entries of each log."""
        kept = {batch: end for batch, end in self.offsets.items() if batch < offsets}
        return Checkpoint(self.query, kept, {batch for batch in self.commits if batch < commits})

    @property
    def next_batch(self) -> int:
        """As Spark has it: the last one that is planned, if it is not committed."""
        last = max(self.offsets, default=-1)
        return last if last >= 0 and last not in self.commits else last + 1


@dataclass
class Run:
    """One run of the query, in processes of its own."""

    cluster: Cluster
    checkpoint: Checkpoint
    name: str
    sink: str = "s"
    topic: str = "t"
    former: FormerNames | None = None
    planned: Planned | None = None
    """What the sink learns of each batch's plan; None: where it ends, and that this names its rows."""
    fail_on_difference: bool = True
    requires_decisions: bool = True

    def run_batch(self, available: int, *, tasks: int = 2, calls: int | None = None, log: bool = True) -> None:
        """Plan a batch of all rows up to ``available``, unless it is planned; run it, and log that it is committed.

        With ``calls``, the committer is killed before it has made so many requests more.
        """
        batch = self.checkpoint.next_batch
        start = self.checkpoint.offsets.get(batch - 1, 0)
        end = self.checkpoint.offsets.setdefault(batch, available)
        outcomes = self.run_tasks(batch, range(start, end), tasks)
        planned = self.planned or Planned(self.topic, f"[{end}]", names_rows=True)
        work = commit_batch(
            broker_of(self.cluster), outcomes, batch, planned, fail_on_difference=self.fail_on_difference
        )
        if calls is not None:
            kill_after(work, calls)
            return
        run(work)
        if log:
            self.checkpoint.commits.add(batch)

    def run_tasks(self, batch: int, rows: Sequence[int], tasks: int) -> list[TaskOutcome]:
        broker = broker_of(self.cluster)
        permit = run(begin_batch(broker, self.sink, self.former, requires_decisions=self.requires_decisions))
        slots = SlotPool(self.name)

        async def share(number: int) -> AsyncIterator[list[int]]:
            for row in rows[number::tasks]:
                yield [row]

        query = self.checkpoint.query
        return [run(write_rows(broker, permit, slots, query, batch, share(number), digest)) for number in range(tasks)]
