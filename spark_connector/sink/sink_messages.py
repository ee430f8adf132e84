"""What travels between Spark's processes for a sink: the tasks' messages, and the columns of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.spark_connector.sink.commit.task import TaskOutcome

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task's attempt tells the driver; None where nothing has to be committed."""

    outcome: TaskOutcome | None


def columns_of(schema: "StructType") -> list[tuple[str, str]]:
    """(name, type) of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def outcomes_of(messages: "Sequence[WriterCommitMessage | None]") -> list[TaskOutcome]:
    """Of the tasks that have told; Spark has None for the others."""
    return [each.outcome for each in messages if isinstance(each, TaskMessage) and each.outcome is not None]
