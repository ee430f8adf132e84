"""A task: it writes its rows in a transaction of its own, leaves that open, and returns which it is.

An attempt that fails aborts what it has begun; one that is killed leaves it to the driver. A task of a batch that was
decided before sends nothing (it digests its rows, if the decision has a digest to compare with), one of a batch that
comes before a decided one raises ``CheckpointRewound``, one of a later batch of a stream of which no decision is known
raises ``DecisionsMissing``, and one without rows begins no transaction, because an empty transaction cannot be
committed. At its end it reads the record once more: if the batch has been decided without it (it lost a race of
speculative attempts, say), its transaction will not be listed, and it aborts it itself.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from oncelog.spark_connector.sink.commit.batch_content import NO_ROWS, Content
from oncelog.spark_connector.sink.commit.on_error import OnError
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_broker import RowWriter, SinkBroker, Written
from oncelog.spark_connector.sink.commit.sink_errors import (
    CheckpointRewound,
    DecisionsMissing,
    ResponseLost,
    SupersededTask,
)
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction, task_id
from oncelog.spark_connector.sink.commit.slot_pool import SlotPool

NOTHING = Written(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What a task reports to the driver. ``transaction`` is None without rows; ``skipped`` if the batch was decided."""

    permit: Permit
    query: str
    batch: int
    run: str = ""
    """The run of the streaming query that saves the batch (``foreachBatch``); empty if it is not known."""
    transaction: TaskTransaction | None = None
    written: Written = NOTHING
    skipped: bool = False
    content: Content | None = None
    """The content of its rows, written or skipped; None if it is not needed."""


async def write_rows(
    broker: SinkBroker,
    permit: Permit,
    slots: SlotPool,
    query: str,
    batch: int,
    rows: AsyncIterator[Any],
    digest: Callable[[Any], Content],
) -> TaskOutcome:
    """Write the row batches of ``rows``, none of them empty. Spark retries the task after any exception."""
    if permit.is_behind(query, batch):
        until = f", up to {permit.decided_until}" if permit.decided_until else ""
        raise CheckpointRewound(permit.sink, query, batch, f"batch {permit.decided_batch} is decided already{until}")
    if permit.is_unaccounted(query, batch):
        raise DecisionsMissing(permit.sink, query, batch, permit.home.topic, permit.decided_query)
    content = NO_ROWS if permit.digests_rows(query, batch) else None
    if permit.is_decided(query, batch):
        if content is not None:
            async for each in rows:
                content = content.plus(digest(each))
        return TaskOutcome(permit=permit, query=query, batch=batch, skipped=True, content=content)
    first = await anext(rows, None)
    if first is None:
        return TaskOutcome(permit=permit, query=query, batch=batch, content=content)
    writer = await _begin(broker, permit, slots, query, batch)
    async with OnError(writer.abort):
        await writer.write(first)
        content = None if content is None else content.plus(digest(first))
        async for more in rows:
            await writer.write(more)
            content = None if content is None else content.plus(digest(more))
        written = await writer.finish()
        if permit.may_decide:
            state = await broker.read_state(permit.sink, permit.home, permit.state_position)
        else:
            state = None
        if state is not None and (state.decides(query, batch) or state.is_beyond(query, batch)):
            raise SupersededTask(f"batch {batch} of query {query} was decided without this attempt")
        await writer.leave()
    return TaskOutcome(
        permit=permit, query=query, batch=batch, transaction=writer.transaction, written=written, content=content
    )


async def _begin(broker: SinkBroker, permit: Permit, slots: SlotPool, query: str, batch: int) -> RowWriter:
    """Begin a transaction in a free slot. An id whose InitProducerId had no response is skipped: it may come late."""
    while True:
        slot = slots.take(permit.sink, permit.generation, query, batch)
        try:
            writer = await broker.open_writer(task_id(permit.sink, permit.generation, slots.process, slot))
        except ResponseLost:
            continue
        slots.begun(permit.sink, permit.generation, slot)
        return writer
