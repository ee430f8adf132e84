"""The errors of the sink, in words for the user. ``docs/reference/spark.md`` has the remedies."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pickle import PickleError
from typing import Any, Final

from oncelog.clients.errors import ClientError, restore
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction

_log = logging.getLogger(__name__)


class SinkError(Exception):
    """The base of the errors below. It can be pickled, whatever arguments the constructor of a subclass has."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), self.args), self.__dict__


class SinkFenced(SinkError):
    """Another driver of the same sink has taken over: this one may not decide any more."""


class BatchNotDecided(SinkError):
    """The batch was aborted as a whole, none of its rows is visible; it can be run again."""


class SupersededTask(SinkError):
    """A task of a batch that is over: its attempt came too late to be part of it."""


class TopicReplaced(SinkError):
    """A topic was deleted and created again during an attempt of a task; the task can be retried."""


class CheckpointRewound(SinkError):
    """The batch that is to be written is not the one that was decided under its number, or comes before it."""

    def __init__(self, sink: str, query: str, batch: int, found: str, more: str = "") -> None:
        self._identity = (sink, query, batch, found, more)
        super().__init__(
            f"batch {batch} of {query} is not written: {found}. The checkpoint is older than what sink {sink} has "
            "written (a restored backup, deleted offsets or commits, a copy that another query goes on with), or the "
            "number belongs to other rows. Nothing of this batch is visible, and nothing of what was written before is "
            "lost. Restore the newest checkpoint; or begin with a new one, and have it read from where the decided "
            f"batch ends{more}"
        )

    def __reduce__(self) -> tuple[type["CheckpointRewound"], tuple[object, ...]]:
        return CheckpointRewound, self._identity


OTHER_ROWS: Final = (
    ". If the checkpoint is the newest and this is the same batch, whose rows are others each time that it is run "
    "(rand(), a limit without an order, sums of doubles), set failOnDifferentRows=false for one run: the batch is "
    "skipped then, and its rows stay as they were decided. Of two save()s with one txnVersion, also to topics that the "
    "column topic names, the second one needs a txnAppId of its own"
)
"""What the message of ``CheckpointRewound`` adds if rows were compared."""


class SaveRepeated(SinkError):
    """One run of a streaming query saves the same version of an application to the same topic twice."""

    def __init__(self, application: str, version: int) -> None:
        self._identity = (application, version)
        super().__init__(
            f"version {version} of application {application} (txnVersion, txnAppId) is saved already by this run of "
            "the query: a second save() to the same topic, or to topics of the column, in one foreachBatch would be "
            "taken for a repetition of the first one, and skipped. Nothing of it is written. Give it a txnAppId of its "
            "own, and leave that of the first save() as it is; then start the query again"
        )

    def __reduce__(self) -> tuple[type["SaveRepeated"], tuple[object, ...]]:
        return SaveRepeated, self._identity


class ResponseLost(SinkError):
    """An InitProducerId had no response: it may take effect later, so another transactional id has to be used."""


NO_STATE: Final = (
    "sink %s has written before, and no partition of its state topic %s has a record of it. That is expected if it "
    "was killed in its very first batch. If the state topic was deleted, created again or emptied, what was written "
    "last may be written a second time: look at the target topic"
)
"""The log line of a driver that is not the first one and finds no record."""


class DecisionsMissing(SinkError):
    """No decision is known of the earlier batches of a stream: so this later one may be written already."""

    def __init__(self, sink: str, query: str, batch: int, topic: str, other: str) -> None:
        self._identity = (sink, query, batch, topic, other)
        found = f"its decisions are of query {other}" if other else "there is no decision of it"
        super().__init__(
            f"batch {batch} of query {query} is not written: the state topic {topic} (stateTopic) should have the "
            f"decision of the batch before by sink {sink}, and {found}. Either the state topic was deleted, created "
            "again or emptied; or the query has gone on with another stateTopic, transactionalIdPrefix or cluster, or "
            "from a sink that was not exactly once; or another query has used the name of this sink. So it is not "
            f"known whether batch {batch} was written: look at the target topic. If it was not, or may be written "
            "twice, set failOnMissingDecisions=false for one run. Otherwise begin with a new checkpoint, and have it "
            "read from where the last batch that is written ends"
        )

    def __reduce__(self) -> tuple[type["DecisionsMissing"], tuple[object, ...]]:
        return DecisionsMissing, self._identity


class UnreadableState(SinkError):
    """The state topic has records that this connector cannot decode."""


class UnsuitableStateTopic(SinkError):
    """The state topic has settings with which decisions would be lost."""


class SinkUnavailable(SinkError):
    """A request still failed after all of its retries."""


class UnsupportedBroker(SinkError):
    """The cluster lacks what the exactly-once sink needs."""


class TransactionsLost(SinkError):
    """Transactions of a decided batch were aborted before they could be committed."""

    def __init__(self, query: str, batch: int, lost: Iterable[tuple[TaskTransaction, str]]) -> None:
        listed = ", ".join(f"{each.transactional_id} ({state})" for each, state in lost)
        super().__init__(
            f"batch {batch} of query {query} is decided, but transactions of it were lost before they were committed: "
            f"{listed}. They were open for longer than transactionTimeoutMs, or another client aborted them; the rows "
            "of the other tasks are committed. The rows of an unknown one, unused for transactional.id.expiration.ms, "
            "may be there. After restoring the missing rows, set failOnDataLoss=false for one run to go on"
        )


class BatchNotBegun(SinkError, PickleError):
    """A batch could not begin; it begins while Spark pickles its writer. The message names the error.

    Spark hides all errors of that step but those of pickling.
    """


@contextmanager
def while_aborting(what: str) -> Iterator[None]:
    """Log an error that prevents the abort of a batch: raised, it would hide in Spark why the batch failed.

    The abort is not required: a decision stays, the next prelude aborts the rest, and without one it times out.
    """
    try:
        yield
    except (SinkError, ClientError) as error:
        _log.warning("%s is not aborted now: %s: %s", what, type(error).__name__, error)


@contextmanager
def while_pickling() -> Iterator[None]:
    """Raise errors of the sink or its client as ``BatchNotBegun``, which Spark shows."""
    try:
        yield
    except (SinkError, ClientError) as error:
        raise BatchNotBegun(f"{type(error).__name__}: {error}") from error
