"""What can go wrong with the sink, in words for whoever runs the query. ``docs/reference/spark.md`` says what to do."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pickle import PickleError
from typing import Any, Final

from oncelog.clients.errors import ClientError, restore
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction

_log = logging.getLogger(__name__)


class SinkError(Exception):
    """The base of everything below. It can be pickled, whatever the constructor of a subclass takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), self.args), self.__dict__


class SinkFenced(SinkError):
    """Another driver of the same sink has begun: this one may not decide anything any more."""


class BatchNotDecided(SinkError):
    """The batch was aborted as a whole, and nothing of it is visible; it can be run again."""


class SupersededTask(SinkError):
    """A task of a batch that is over: its attempt came too late to be part of it."""


class TopicReplaced(SinkError):
    """A topic was deleted and created again under an attempt of a task, which can be made again."""


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
"""What a ``CheckpointRewound`` says besides, where rows were compared."""


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


class AnswerLost(SinkError):
    """Whether a transactional id was taken is not known: the request may arrive even later. Another id has to do."""


NO_STATE: Final = (
    "sink %s has been at work before, and no partition of its state topic %s has a record of it. That is right if it "
    "was killed in its very first batch. If the state topic was deleted, created again or emptied, what was written "
    "last may be written a second time: look at the target topic"
)
"""What is logged when a driver is not the first one and finds no record."""


class DecisionsMissing(SinkError):
    """A later batch of a stream, of whose earlier batches no decision is known: this one may be written already."""

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
    """The state topic holds something else than this connector's records."""


class UnsuitableStateTopic(SinkError):
    """The state topic is set up so that decisions would be lost."""


class SinkUnavailable(SinkError):
    """Brokers did not carry out what was asked, although it was asked again for a long time."""


class UnsupportedBroker(SinkError):
    """The cluster lacks what the exactly-once sink needs."""


class TransactionsLost(SinkError):
    """Transactions of a decided batch were ended by somebody else before they were committed."""

    def __init__(self, query: str, batch: int, lost: Iterable[tuple[TaskTransaction, str]]) -> None:
        listed = ", ".join(f"{each.transactional_id} ({state})" for each, state in lost)
        super().__init__(
            f"batch {batch} of query {query} is decided, but transactions of it were lost before they were committed: "
            f"{listed}. They were open for longer than transactionTimeoutMs, or somebody aborted them; the rows of the "
            "other tasks are committed. Of an unknown one, unused for transactional.id.expiration.ms, the rows may be "
            "there. After restoring the missing rows, set failOnDataLoss=false for one run to go on"
        )


class BatchNotBegun(SinkError, PickleError):
    """A batch could not begin, which it does while Spark pickles its writer: the message names the error.

    Spark hides all errors in there but those of pickling.
    """


@contextmanager
def while_aborting(what: str) -> Iterator[None]:
    """Log what prevents a batch from being taken back: Spark hides why it failed behind an error of its abort.

    Nothing depends on it. What is decided stays decided, and the next prelude judges the rest; what nobody goes on with
    times out.
    """
    try:
        yield
    except (SinkError, ClientError) as error:
        _log.warning("%s is not taken back now: %s: %s", what, type(error).__name__, error)


@contextmanager
def while_pickling() -> Iterator[None]:
    """Have an error of the sink or its client come out of pickling as it is."""
    try:
        yield
    except (SinkError, ClientError) as error:
        raise BatchNotBegun(f"{type(error).__name__}: {error}") from error
