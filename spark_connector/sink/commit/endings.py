"""Ending tasks' transactions: committing what was decided, strictly, and aborting what was not, as far as possible.

To commit is a duty: what a coordinator refuses is looked at, and is either committed already or lost. To abort is
tidying up: a transaction that somebody else has ended, or that will time out, is no concern. Each names one transaction
by its epoch, never just an id: nothing can be hit that has begun since.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from oncelog.protocol.errors import ErrorCode
from oncelog.spark_connector.sink.commit.sink_broker import PASSING, OpenTransaction, SinkBroker, insist
from oncelog.spark_connector.sink.commit.sink_errors import SinkUnavailable, TransactionsLost
from oncelog.spark_connector.sink.commit.sink_transactions import (
    Description,
    Driver,
    TaskTransaction,
    generation_of,
    is_committed,
)
from oncelog.spark_connector.sink.commit.state_record import StateRecord


async def commit_decided(broker: SinkBroker, state: StateRecord) -> None:
    """Commit every transaction that is listed. Raises ``TransactionsLost``."""
    refused = await end_all(broker, state.transactions, commit=True)
    if not refused:
        return
    described = await describe_all(broker, [each.transactional_id for each in refused], is_decided=True)
    lost = [(each, described[each.transactional_id].state or "unknown") for each in refused]
    lost = [(each, found) for each, found in lost if not is_committed(each, described[each.transactional_id])]
    if lost:
        raise TransactionsLost(state.query, state.batch, lost)


async def end_all(
    broker: SinkBroker, transactions: Sequence[TaskTransaction], *, commit: bool
) -> list[TaskTransaction]:
    """End transactions, and return those whose coordinators have refused it for good. Only what is decided commits."""
    patience = broker.patience(is_decided=commit)
    pending = list(transactions)
    refused: list[TaskTransaction] = []
    while pending:
        answers = await broker.end(pending, commit=commit)
        by_fate = list(zip(pending, (answer.error for answer in answers), strict=True))
        refused += [each for each, error in by_fate if error is not ErrorCode.NONE and error not in PASSING]
        pending = [each for each, error in by_fate if error in PASSING]
        if pending:
            await patience.wait(next(error for _, error in by_fate if error in PASSING))
    return refused


async def describe_all(
    broker: SinkBroker, transactional_ids: Collection[str], *, is_decided: bool = False
) -> dict[str, Description]:
    """What coordinators say of some ids. Raises ``SinkUnavailable``."""
    patience = broker.patience(is_decided=is_decided)
    described: dict[str, Description] = {}
    while missing := [each for each in transactional_ids if each not in described]:
        passing = ErrorCode.NONE
        for transactional_id, answer in (await broker.describe(missing)).items():
            if isinstance(answer, Description):
                described[transactional_id] = answer
            elif answer not in PASSING:
                raise SinkUnavailable(f"transactional id {transactional_id} cannot be described: {answer.name}")
            else:
                passing = answer
        if passing is not ErrorCode.NONE:
            await patience.wait(passing)
    return described


def decided_and_open(state: StateRecord, opened: Iterable[OpenTransaction]) -> list[TaskTransaction]:
    """The open transactions that are to be committed: the very ones that are listed."""
    still_open = set(opened)
    return [each for each in state.transactions if OpenTransaction(*each[:3]) in still_open]


def strays(state: StateRecord, generation: int, opened: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """What is to be aborted: nobody has listed it, and no later driver's task can have opened it."""
    listed = {OpenTransaction(*each[:3]) for each in state.transactions}
    found = []
    for each in opened:
        of = generation_of(state.sink, each.transactional_id)
        if of is not None and of <= generation and each not in listed:
            found.append(each)
    return found


async def abort_all(broker: SinkBroker, transactions: Sequence[TaskTransaction]) -> None:
    """Abort these very transactions, and fence whoever writes in them.

    With version 2 the end does both. With version 1 an end would leave the epoch, and a task that is still at work
    would go on in another transaction of the same epoch, without the rows before; nobody could tell it from a whole
    one. So the epoch is taken instead, which ends it too. Coordinators look at the producer id alone before they do
    that: a request that arrives late would hit the next transaction of that name. So with version 1 names that were
    fenced are not used again: the generation has to go on.
    """
    await end_all(broker, [each for each in transactions if each.version >= 2], commit=False)
    for each in transactions:
        if each.version < 2:
            await insist(broker, partial(broker.init_producer_id, each.transactional_id, Driver(*each[1:3])))


async def find_strays(
    broker: SinkBroker, state: StateRecord, generation: int, opened: Iterable[OpenTransaction]
) -> list[TaskTransaction]:
    """Those of the open transactions that are to be aborted."""
    version = await broker.transaction_version()
    return [TaskTransaction(*each, version) for each in strays(state, generation, opened)]
