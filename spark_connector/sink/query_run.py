"""Which run of a streaming query a task belongs to: each start of a query is a new run.

Spark gives each run a session of its own, whose id is in the tags of all of its jobs, those of ``foreachBatch`` too.
The group of these jobs is the run's id unless a program sets its own, which may be any text, also the same one in every
run. So the group counts only if there is no such tag.
"""

import re
from typing import Final, Protocol

_QUERY_ID: Final = "sql.streaming.queryId"
_JOB_TAGS: Final = "spark.job.tags"
_JOB_GROUP: Final = "spark.jobGroup.id"
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SESSION_TAG: Final = re.compile(rf"spark-session-({_UUID})-execution-root-id-\d+")
"""Of the execution that the whole batch is."""
_RUN_ID: Final = re.compile(_UUID)


def run_of(job_tags: str, job_group: str) -> str:
    """Return what only the jobs of one run have in common; empty if that is not known. Pure."""
    tagged = [found[1] for each in job_tags.split(",") if (found := _SESSION_TAG.fullmatch(each))]
    if len(tagged) == 1:
        return tagged[0]
    return job_group if _RUN_ID.fullmatch(job_group) else ""


class Task(Protocol):
    """The part of Spark's ``TaskContext`` with properties of the task's job."""

    def getLocalProperty(self, key: str) -> str | None: ...


def run_of_task(task: Task | None) -> str:
    """Return the run of the streaming query that a task is part of; empty if there is none."""
    if task is None or task.getLocalProperty(_QUERY_ID) is None:
        return ""
    return run_of(task.getLocalProperty(_JOB_TAGS) or "", task.getLocalProperty(_JOB_GROUP) or "")
