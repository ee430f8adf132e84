"""Conversions between Spark's types and the sink's: the tasks' messages, and the columns of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.spark_connector.sink.commit.task import TaskOutcome

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The message of a task's attempt to the driver; None if nothing has to be committed."""

    outcome: TaskOutcome | None


def columns_of(schema: "StructType") -> list[tuple[str, str]]:
    """Return (name, type) of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def outcomes_of(messages: "Sequence[WriterCommitMessage | None]") -> list[TaskOutcome]:
    """Return the outcomes of the tasks that sent one; Spark has None for the others."""
    return [each.outcome for each in messages if isinstance(each, TaskMessage) and each.outcome is not None]
