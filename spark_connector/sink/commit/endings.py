"""Ends tasks' transactions: commits the decided ones, strictly, and aborts the others, as far as possible.

A commit that a coordinator refuses is checked: the transaction is either committed already, or lost. An abort is
clean-up: a transaction that has ended already, or will time out, is no error. Each request names one transaction by its
producer epoch, not only by its id: no later transaction of the id can be ended by it.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from oncelog.protocol.errors import ErrorCode
from oncelog.spark_connector.sink.commit.sink_broker import TRANSIENT, OpenTransaction, SinkBroker, retry_transient
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
    """End transactions; return those whose coordinators refuse it. Only decided transactions may be committed."""
    patience = broker.patience(is_decided=commit)
    pending = list(transactions)
    refused: list[TaskTransaction] = []
    while pending:
        ended = await broker.end(pending, commit=commit)
        by_error = list(zip(pending, (each.error for each in ended), strict=True))
        refused += [each for each, error in by_error if error is not ErrorCode.NONE and error not in TRANSIENT]
        pending = [each for each, error in by_error if error in TRANSIENT]
        if pending:
            await patience.wait(next(error for _, error in by_error if error in TRANSIENT))
    return refused


async def describe_all(
    broker: SinkBroker, transactional_ids: Collection[str], *, is_decided: bool = False
) -> dict[str, Description]:
    """Return the coordinators' descriptions of some ids. Raises ``SinkUnavailable``."""
    patience = broker.patience(is_decided=is_decided)
    described: dict[str, Description] = {}
    while missing := [each for each in transactional_ids if each not in described]:
        transient = ErrorCode.NONE
        for transactional_id, found in (await broker.describe(missing)).items():
            if isinstance(found, Description):
                described[transactional_id] = found
            elif found not in TRANSIENT:
                raise SinkUnavailable(f"transactional id {transactional_id} cannot be described: {found.name}")
            else:
                transient = found
        if transient is not ErrorCode.NONE:
            await patience.wait(transient)
    return described


def decided_and_open(state: StateRecord, opened: Iterable[OpenTransaction]) -> list[TaskTransaction]:
    """Return the listed transactions that are still open, in the same epoch: they are to be committed."""
    still_open = set(opened)
    return [each for each in state.transactions if OpenTransaction(*each[:3]) in still_open]


def strays(state: StateRecord, generation: int, opened: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """Return the open transactions to abort: not listed, and of ``generation`` or an older one."""
    listed = {OpenTransaction(*each[:3]) for each in state.transactions}
    found = []
    for each in opened:
        of = generation_of(state.sink, each.transactional_id)
        if of is not None and of <= generation and each not in listed:
            found.append(each)
    return found


async def abort_all(broker: SinkBroker, transactions: Sequence[TaskTransaction]) -> None:
    """Abort exactly these transactions, and fence the tasks that write in them.

    With version 2 EndTxn does both. With version 1 it would leave the epoch, and a task that still runs would go on in
    another transaction of the same epoch, without the rows before; it would look complete. So InitProducerId bumps the
    epoch instead, which aborts the transaction too. A coordinator compares only the producer id before that: a request
    that arrives late would abort the next transaction of the id. So with version 1 ids that were fenced are not used
    again: the generation has to be incremented.
    """
    await end_all(broker, [each for each in transactions if each.version >= 2], commit=False)
    for each in transactions:
        if each.version < 2:
            await retry_transient(broker, partial(broker.init_producer_id, each.transactional_id, Driver(*each[1:3])))


async def find_strays(
    broker: SinkBroker, state: StateRecord, generation: int, opened: Iterable[OpenTransaction]
) -> list[TaskTransaction]:
    """Return the open transactions to abort, with the version of the transaction protocol."""
    version = await broker.transaction_version()
    return [TaskTransaction(*each, version) for each in strays(state, generation, opened)]
