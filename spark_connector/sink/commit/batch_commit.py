"""The driver's steps after a batch's tasks: ``commit_batch`` if all have succeeded, ``abort_batch`` if not.

``commit_batch`` validates, decides, and then commits the transactions. Between the decision and the last commit a
reader may see some transactions of the batch and not yet others; after a crash the next prelude commits the others.

``abort_batch`` is called when a task has failed for good, and also when ``commit_batch`` has raised, even after the
decision. So it fences and reads first, as a prelude does: no other driver can decide after that read.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.batch_content import Content
from oncelog.spark_connector.sink.commit.batch_outcome import BatchOutcome, transactions_of
from oncelog.spark_connector.sink.commit.decisions import take_over, write_state
from oncelog.spark_connector.sink.commit.endings import abort_all, commit_decided, describe_all, find_strays
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_broker import SinkBroker, retry_transient
from oncelog.spark_connector.sink.commit.sink_errors import (
    OTHER_ROWS,
    BatchNotDecided,
    CheckpointRewound,
    SaveRepeated,
    SinkError,
    SinkFenced,
    TransactionsLost,
)
from oncelog.spark_connector.sink.commit.sink_transactions import Driver, TaskTransaction, driver_id, is_open
from oncelog.spark_connector.sink.commit.state_home import find_state
from oncelog.spark_connector.sink.commit.state_record import NO_BATCH, UNKNOWN_PLAN, Planned, StateRecord
from oncelog.spark_connector.sink.commit.task import TaskOutcome
from oncelog.spark_connector.sink.commit.written_topics import names_of, replaced_topics, replacement

_log = logging.getLogger(__name__)


async def commit_batch(
    broker: SinkBroker,
    outcomes: Sequence[TaskOutcome],
    batch: int,
    planned: Planned = UNKNOWN_PLAN,
    *,
    fail_on_loss: bool = True,
    fail_on_difference: bool = True,
) -> None:
    """Make the batch visible, exactly once however often it is called.

    Without ``fail_on_difference`` a decided batch that comes again with other rows is skipped, if its offsets are the
    same or not known.

    Raises ``BatchNotDecided``, ``SinkFenced``, ``CheckpointRewound`` and ``SaveRepeated`` (nothing is visible), and
    ``TransactionsLost``.
    """
    outcome = BatchOutcome.of(outcomes)
    permit, query, driver = outcome.permit, outcome.query, outcome.permit.driver
    state = await broker.read_state(permit.sink, permit.home) or StateRecord(sink=permit.sink)
    if state.generation < permit.generation:
        await abort_all(broker, outcome.transactions)
        raise BatchNotDecided(
            f"batch {batch} was aborted as a whole: the record of sink {permit.sink} has vanished from the state topic "
            f"{permit.home.topic} since the batch began. Was the topic deleted, created again or emptied?"
        )
    if state.query not in ("", query):
        _log.warning("sink %s now writes for query %s; it has written for %s before", permit.sink, query, state.query)
    if state.is_beyond(query, batch):
        raise SinkFenced(f"another run of the query has gone on to batch {state.batch} of sink {permit.sink}")
    if state.decides(query, batch):
        _check_repetition(state, outcome, planned, fail_on_difference=fail_on_difference)
        if state.run != outcome.run:
            state, driver = await _note_run(broker, state, driver, permit.home, outcome.run)
    else:
        if outcome.skipped:
            raise BatchNotDecided(f"tasks of batch {batch} have skipped it, and it is not decided")
        await _require_same_topics(broker, outcome, f"batch {batch}")
        await _validate(broker, outcome.transactions, f"batch {batch}")
        state = outcome.decision(state, batch, planned)
        if not outcome.transactions:
            state = state.when_settled(driver, await broker.transaction_version())
        driver = await write_state(broker, driver, state, permit.home)
    await _carry_out(broker, state, fail_on_loss)
    await _clean_up(broker, state, permit, driver)


async def abort_batch(
    broker: SinkBroker, outcomes: Sequence[TaskOutcome], sink: str, batch: int, *, fail_on_loss: bool = True
) -> None:
    """Abort the batch, unless it is decided: then commit it. ``outcomes`` are those that are known, maybe none."""
    permit = outcomes[0].permit if outcomes else None
    if permit is None:  # The batch's driver is not known; no driver may decide while strays are aborted.
        found = (await find_state(broker, sink, await take_over(broker, sink))).state
    else:  # A refusal means that another driver has taken over.
        await retry_transient(broker, lambda: broker.init_producer_id(driver_id(sink), permit.driver))
        found = await broker.read_state(sink, permit.home)
    state = found or StateRecord(sink=sink)
    if outcomes and (state.decides(outcomes[0].query, batch) or state.is_beyond(outcomes[0].query, batch)):
        await _carry_out(broker, state, fail_on_loss)
        return
    await abort_all(broker, transactions_of(outcomes))
    await _abort_leftovers(broker, state, state.generation if permit is None else permit.generation)


async def commit_unnamed(broker: SinkBroker, outcomes: Sequence[TaskOutcome], *, fail_on_loss: bool = True) -> None:
    """Commit a batch without a decision: no later driver knows its sink's name, so none could read the decision.

    A crash in here may leave some of its transactions committed, while the others time out.
    """
    outcome = BatchOutcome.of(outcomes)
    await _require_same_topics(broker, outcome, "the batch")
    await _validate(broker, outcome.transactions, "the batch")
    state = outcome.decision(StateRecord(sink=outcome.permit.sink), NO_BATCH, UNKNOWN_PLAN)
    await _carry_out(broker, state, fail_on_loss)
    await _abort_leftovers(broker, state, outcome.permit.generation)


async def abort_unnamed(broker: SinkBroker, outcomes: Sequence[TaskOutcome], sink: str) -> None:
    """Abort such a batch, as far as it is not committed."""
    await abort_all(broker, transactions_of(outcomes))
    await abort_late_tasks(broker, sink)


async def abort_late_tasks(broker: SinkBroker, sink: str) -> None:
    """Abort the open transactions of such a batch: tasks may have begun them after it was aborted."""
    await _abort_leftovers(broker, StateRecord(sink=sink), 0)


def _check_repetition(state: StateRecord, outcome: BatchOutcome, planned: Planned, *, fail_on_difference: bool) -> None:
    """Log that a decided batch is skipped.

    Raises ``CheckpointRewound`` if these are not the rows that were decided, and ``SaveRepeated`` if the same run of
    the query has saved the batch before: a run ends at a batch that fails, so these are other rows of the same batch.
    """
    if outcome.run and state.run == outcome.run and state.settled:
        raise SaveRepeated(state.query, state.batch)
    difference = state.planned.difference(planned)
    if difference:
        raise CheckpointRewound(state.sink, state.query, state.batch, f"it is decided {difference}")
    difference = _difference_of_rows(state, planned, outcome.content)
    if difference:
        if fail_on_difference:
            raise CheckpointRewound(state.sink, state.query, state.batch, f"it is decided {difference}", OTHER_ROWS)
        _log.warning("failOnDifferentRows is false: batch %d is decided %s", state.batch, difference)
    _log.warning("batch %d of %s is written already: sink %s skips it", state.batch, state.query, state.sink)


def _difference_of_rows(state: StateRecord, planned: Planned, content: Content | None) -> str:
    """Describe how the rows differ from those that were decided, if their plans do not; empty if they do not differ.

    The rows of a batch that a former release has decided without known offsets cannot be compared.
    """
    decided = state.planned
    if decided.is_same(planned):
        return ""
    if state.content is not None:
        return "" if content == state.content else f"with {state.content} and not with {content or 'unknown rows'}"
    if decided.offsets and not planned.offsets:
        return f"up to {decided.offsets}, and where it ends in this checkpoint cannot be read"
    return ""


async def _note_run(
    broker: SinkBroker, state: StateRecord, driver: Driver, home: TopicPartition, run: str
) -> tuple[StateRecord, Driver]:
    """Record that another run has found the batch saved; a second time in that run is ``SaveRepeated``."""
    state = replace(state, run=run)
    if state.settled:
        state = state.when_settled(driver, await broker.transaction_version())
    return state, await write_state(broker, driver, state, home)


async def _require_same_topics(broker: SinkBroker, outcome: BatchOutcome, what: str) -> None:
    """Abort the batch if a topic was deleted and created again since its first row: some of its rows are gone.

    Ids are never reused, so every row went to one topic if its id is the same now as before the first row. A broker may
    have old metadata of a new topic. Tasks that write by id (Produce from version 13) detect that too, and no rows can
    be in a topic that is replaced after them; with older brokers a replacement at that moment is not detected.
    """
    replaced = replaced_topics(outcome.written, await broker.topic_ids(names_of(outcome.written)))
    if replaced:
        await abort_all(broker, outcome.transactions)
        raise BatchNotDecided(f"{what} was aborted as a whole, and can be run again: {replacement(replaced)}")


async def _validate(broker: SinkBroker, transactions: Sequence[TaskTransaction], what: str) -> None:
    """Abort the batch and raise ``BatchNotDecided`` if a transaction has ended since its task (it timed out, say)."""
    described = await describe_all(broker, [each.transactional_id for each in transactions])
    ended = [each for each in transactions if not is_open(each, described[each.transactional_id])]
    if not ended:
        return
    await abort_all(broker, [each for each in transactions if each not in ended])
    listed = ", ".join(f"{each.transactional_id} ({described[each.transactional_id].state})" for each in ended)
    raise BatchNotDecided(
        f"{what} was aborted as a whole, and can be run again: transactions of it ended too early: {listed}. "
        "If tasks take long, transactionTimeoutMs must be longer"
    )


async def _carry_out(broker: SinkBroker, state: StateRecord, fail_on_loss: bool) -> None:
    if state.settled:
        return
    try:
        await commit_decided(broker, state)
    except TransactionsLost as error:
        if fail_on_loss:
            raise
        _log.warning("failOnDataLoss is false: %s", error)


async def _clean_up(broker: SinkBroker, state: StateRecord, permit: Permit, driver: Driver) -> None:
    """Record that the batch is settled, and abort the transactions of attempts that are not part of it.

    If this fails the batch is visible all the same. The next prelude aborts the leftovers; without the record, a batch
    that is run again depends on its transactions' states, which coordinators keep for
    ``transactional.id.expiration.ms``.
    """
    try:
        opened = await broker.open_transactions(f"{state.sink}.")
        leftovers = await find_strays(broker, state, permit.generation, opened)
        settled = state
        if not state.settled:
            settled = state.when_settled(driver, await broker.transaction_version())
        if any(each.version < 2 for each in leftovers):  # Their names must not be used again.
            settled = settled.when_settled(driver, 1).in_next_generation()
        if settled != state:
            await write_state(broker, driver, settled, permit.home)
        await abort_all(broker, leftovers)
    except SinkError as error:
        _log.warning("the end of batch %d of sink %s is not recorded: %s", state.batch, state.sink, error)


async def _abort_leftovers(broker: SinkBroker, state: StateRecord, generation: int) -> None:
    """Abort the open transactions that are not listed; ids that are fenced here are never used again."""
    opened = await broker.open_transactions(f"{state.sink}.")
    await abort_all(broker, await find_strays(broker, state, generation, opened))
