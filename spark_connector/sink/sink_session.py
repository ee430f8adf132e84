"""One process's part in the sink: the port over this process's connections, and what the process remembers.

Spark uses a process again for later batches. So memory is kept with the process's client.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import Any, Final

from oncelog.spark_connector.process_client import ProcessClient, process_client
from oncelog.spark_connector.sink.cluster_broker import ClusterBroker, SinkSettings
from oncelog.spark_connector.sink.commit.batch_commit import (
    abort_batch,
    abort_late_tasks,
    abort_unnamed,
    commit_batch,
    commit_unnamed,
)
from oncelog.spark_connector.sink.commit.on_error import OnError
from oncelog.spark_connector.sink.commit.prelude import Permit, begin_batch
from oncelog.spark_connector.sink.commit.sink_broker import RowWriter, SinkBroker, Written
from oncelog.spark_connector.sink.commit.sink_transactions import NO_DRIVER
from oncelog.spark_connector.sink.commit.slot_pool import SlotPool
from oncelog.spark_connector.sink.commit.state_record import UNKNOWN_PLAN, Planned
from oncelog.spark_connector.sink.commit.task import TaskOutcome, write_rows
from oncelog.spark_connector.sink.pulled_rows import PulledRows
from oncelog.spark_connector.sink.slot_file import claim_slot_file, new_name
from oncelog.spark_connector.sink.state_log import StateMemory
from oncelog.spark_connector.sink.write_options import WriteOptions, digest

_LATE_LOOKS: Final = 12
_LATE_PAUSE_SECONDS: Final = 0.5
"""Spark checks every 2 s whether a task has to be killed, and kills its Python ``spark.python.task.killTimeout`` (2 s)
later. Until then a task of a failed job may still begin a transaction, and readers would wait for its end."""


def wall_clock() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class ProcessMemory:
    """What this process remembers between the batches of the sinks of one cluster."""

    def __init__(self, client: ProcessClient) -> None:
        self._client = client
        self.unnamed_slots = SlotPool(new_name(client.rng))
        """The slots of batches without a name: the name of their sink is not used again, so no file keeps them."""
        self.states = StateMemory()

    @cached_property
    def slots(self) -> SlotPool:
        """The slots of named sinks; made on first use, by tasks: the driver's processes need no file."""
        client = self._client
        file = claim_slot_file(digest(client.settings.bootstrap), client.rng)
        if file is None:
            return SlotPool(new_name(client.rng))
        client.resources.callback(file.release)
        return SlotPool(file.process, file.kept, file.keep)


class SinkSession:
    """The steps of one writer, as blocking calls. Made in each process, never pickled."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._client = process_client(options.client)
        self._client.reach()
        self._memory = self._client.companion(ProcessMemory)
        self._broker = self.make_broker()

    def make_broker(self) -> SinkBroker:
        """Return the port to the cluster. Tests override it with one that crashes."""
        return self.make_cluster_broker()

    def make_cluster_broker(self) -> ClusterBroker:
        settings = SinkSettings(
            state_topic=self._options.state_topic,
            transaction_timeout_ms=self._options.transaction_timeout_ms,
            patience_seconds=self._options.client.reach_seconds,
        )
        return ClusterBroker(self._client.cluster, settings, self._open_writer, self._memory.states, wall_clock)

    async def _open_writer(self, transactional_id: str | None) -> RowWriter:
        from oncelog.spark_connector.columnar.arrow_encoder import ArrowEncoder
        from oncelog.spark_connector.sink.arrow_row_writer import ArrowRowWriter
        from oncelog.spark_connector.sink.batch_producer import BatchProducer

        options = self._options
        producer = BatchProducer(self._client.cluster, options.producer_config(transactional_id), wall_clock)
        await producer.start()
        encoder = ArrowEncoder(options.topic, options.batch_bytes, self._client.rng, state_topic=options.state_topic)
        return ArrowRowWriter(producer, encoder, transactional_id or "")

    def begin(self, sink: str, *, plans_name_rows: bool = False) -> Permit:
        """Run the prelude of a batch."""

        async def steps() -> Permit:
            options = self._options
            await self.make_cluster_broker().require_support()
            return await begin_batch(
                self._broker,
                sink,
                options.former,
                plans_name_rows=plans_name_rows,
                requires_decisions=options.fail_on_missing_decisions and options.application is None,
            )

        return self._client.run(steps())

    def begin_unnamed(self) -> Permit:
        """Return the permit of a batch without a name: its sink gets a random name, which is used once.

        Behind ``transactionalIdPrefix``, if there is one: an access control list can allow ids that begin with it.
        """

        async def steps() -> None:
            broker = self.make_cluster_broker()
            await broker.require_support()
            await broker.require_transaction_timeout()

        self._client.run(steps())
        name, prefix = new_name(self._client.rng), self._options.sink
        return Permit(sink=name if prefix is None else f"{prefix}.{name}", generation=0, driver=NO_DRIVER)

    def write(self, permit: Permit, query: str, batch: int, rows: Iterable[Any]) -> TaskOutcome:
        """Run a task, in a transaction of its own."""
        from oncelog.spark_connector.sink.row_digest import digest_of

        async def steps() -> TaskOutcome:
            slots = self._memory.slots if permit.may_decide else self._memory.unnamed_slots
            with closing(PulledRows(each for each in rows if each.num_rows)) as pulled:
                digest = partial(digest_of, topic=self._options.topic)
                return await write_rows(self._broker, permit, slots, query, batch, pulled, digest)

        return self._client.run(steps())

    def write_plainly(self, rows: Iterable[Any]) -> Written:
        """Run a task without a transaction: at least once."""

        async def steps() -> Written:
            writer = await self._open_writer(None)
            async with OnError(writer.abort):
                with closing(PulledRows(iter(rows))) as pulled:
                    async for each in pulled:
                        await writer.write(each)
                written = await writer.finish()
                await writer.leave()
            return written

        return self._client.run(steps())

    def commit(self, outcomes: Sequence[TaskOutcome], batch: int, planned: Planned = UNKNOWN_PLAN) -> None:
        options = self._options
        steps = commit_batch(
            self._broker,
            outcomes,
            batch,
            planned,
            fail_on_loss=options.fail_on_loss,
            fail_on_difference=options.fail_on_difference,
        )
        self._client.run(steps)

    def abort(self, outcomes: Sequence[TaskOutcome], sink: str, batch: int) -> None:
        self._client.run(abort_batch(self._broker, outcomes, sink, batch, fail_on_loss=self._options.fail_on_loss))

    def commit_unnamed(self, outcomes: Sequence[TaskOutcome]) -> None:
        self._client.run(commit_unnamed(self._broker, outcomes, fail_on_loss=self._options.fail_on_loss))

    def abort_unnamed(self, outcomes: Sequence[TaskOutcome], sink: str, *, unreported: int) -> None:
        """Abort a batch without a name. ``unreported`` tasks sent no outcome: one has failed, others may still run."""

        async def steps() -> None:
            await abort_unnamed(self._broker, outcomes, sink)
            if unreported > 1:
                for _ in range(_LATE_LOOKS):
                    await asyncio.sleep(_LATE_PAUSE_SECONDS)
                    await abort_late_tasks(self._broker, sink)

        self._client.run(steps())
