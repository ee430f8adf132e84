"""What the tasks of one batch report together, and the record that decides it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from oncelog.spark_connector.sink.commit.batch_content import Content, content_of_all
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_broker import TopicIds
from oncelog.spark_connector.sink.commit.sink_errors import BatchNotDecided
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import Planned, StateRecord
from oncelog.spark_connector.sink.commit.task import TaskOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcomes of all tasks of a batch that have one permit."""

    permit: Permit
    query: str
    run: str
    """The run of the streaming query that saves the batch (``foreachBatch``); empty if it is not known."""
    transactions: tuple[TaskTransaction, ...]
    written: tuple[TopicIds, ...]
    """For each task the topics that it has written to."""
    content: Content | None
    """The rows of the batch; None if a task did not digest its rows."""
    skipped: bool
    """Whether a task skipped its rows because it found the batch decided."""

    @classmethod
    def of(cls, tasks: Sequence[TaskOutcome]) -> "BatchOutcome":
        """Merge the outcomes of all tasks. Raises ``BatchNotDecided`` if they began under different drivers."""
        if not tasks:
            raise BatchNotDecided("no task has reported an outcome of the batch")
        first = tasks[0]
        if any((each.permit, each.query) != (first.permit, first.query) for each in tasks):
            raise BatchNotDecided("the tasks of the batch began under different drivers")
        return cls(
            permit=first.permit,
            query=first.query,
            run=first.run,
            transactions=tuple(transactions_of(tasks)),
            written=tuple(each.written.topics for each in tasks),
            content=content_of_all(each.content for each in tasks),
            skipped=any(each.skipped for each in tasks),
        )

    def decision(self, state: StateRecord, batch: int, planned: Planned) -> StateRecord:
        """Return the record that commits the batch; ``state`` is the sink's record before it."""
        driver = self.permit.driver
        return replace(
            state,
            query=self.query,
            batch=batch,
            decided_by=(driver.producer_id, driver.epoch),
            transactions=self.transactions,
            settled_by=None,
            planned=planned,
            run=self.run,
            content=None if planned.names_rows else self.content,
        )


def transactions_of(tasks: Iterable[TaskOutcome]) -> list[TaskTransaction]:
    """Return the transactions of those tasks that have begun one."""
    return [each.transaction for each in tasks if each.transaction is not None]
