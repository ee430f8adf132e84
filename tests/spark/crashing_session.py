"""A sink's session that crashes at one point of the protocol; everything in it is the connector's own code.

A point lies before or after one call of the port, in one phase: ``commit/append_state/after``, for example. What
happens there, once, is ``kill-driver`` (SIGKILL to the JVM, to its Python client and to this process), ``kill-process``
(to this process alone), ``stop-process`` (SIGSTOP: it may wake as a zombie) or ``raise``.
"""

import os
import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_broker import (
    Ended,
    OpenTransaction,
    Patience,
    RowWriter,
    SinkBroker,
    Written,
)
from oncelog.spark_connector.sink.commit.sink_transactions import Description, Driver, TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import UNKNOWN_PLAN, Planned, StateRecord
from oncelog.spark_connector.sink.commit.task import TaskOutcome
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import WriteOptions


@dataclass(frozen=True)
class Crash:
    """Where, what, and the file that says that it has happened; its content is this process's id."""

    point: str
    action: str
    done: str
    driver: str
    """Process ids, by commas."""

    def reach(self, point: str) -> None:
        if point != self.point or not self._is_first():
            return
        if self.action == "raise":
            raise RuntimeError(f"crash at {point}")
        if self.action == "stop-process":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self._die()

    def _is_first(self) -> bool:
        try:
            with open(self.done, "x") as file:
                file.write(str(os.getpid()))
            return True
        except FileExistsError:
            return False

    def _die(self) -> NoReturn:
        if self.action == "kill-driver":
            for process in self.driver.split(","):
                os.kill(int(process), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL did not kill")


class CrashingBroker:
    """``SinkBroker`` with a crash before or after a call."""

    def __init__(self, inner: SinkBroker, crash: Crash) -> None:
        self._inner = inner
        self._crash = crash
        self.phase = ""

    def reach(self, call: str, when: str) -> None:
        self._crash.reach(f"{self.phase}/{call}/{when}")

    async def transaction_version(self) -> int:
        return await self._inner.transaction_version()

    async def init_producer_id(self, transactional_id: str, expected: Driver | None = None) -> Driver | ErrorCode:
        self.reach("init_producer_id", "before")
        response = await self._inner.init_producer_id(transactional_id, expected)
        self.reach("init_producer_id", "after")
        return response

    async def state_partitions(self) -> list[TopicPartition]:
        return await self._inner.state_partitions()

    def known_home(self, sink: str) -> TopicPartition | None:
        return self._inner.known_home(sink)

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        self._inner.keep_home(sink, home)

    async def read_state(self, sink: str, home: TopicPartition, since: int | None = None) -> StateRecord | None:
        self.reach("read_state", "before")
        state = await self._inner.read_state(sink, home, since)
        self.reach("read_state", "after")
        return state

    def state_position(self, sink: str, home: TopicPartition) -> int:
        return self._inner.state_position(sink, home)

    async def find_sinks(self, former: FormerNames) -> list[str]:
        return await self._inner.find_sinks(former)

    async def append_state(self, driver: Driver, record: StateRecord, home: TopicPartition, version: int) -> ErrorCode:
        self.reach("append_state", "before")
        error = await self._inner.append_state(driver, record, home, version)
        self.reach("append_state", "after")
        return error

    async def end(self, transactions: Sequence[TaskTransaction], *, commit: bool) -> list[Ended]:
        is_driver = any(each.transactional_id.endswith(".driver") for each in transactions)
        call = "end_driver" if is_driver else "end_tasks"
        if not transactions:
            return []
        self.reach(call, "before")
        responses = await self._inner.end(transactions[:1], commit=commit)
        if len(transactions) > 1:
            self.reach(call, "between")
            responses += await self._inner.end(transactions[1:], commit=commit)
        self.reach(call, "after")
        return responses

    async def topic_ids(self, names: Collection[str]) -> dict[str, bytes]:
        self.reach("topic_ids", "before")
        found = await self._inner.topic_ids(names)
        self.reach("topic_ids", "after")
        return found

    async def describe(self, transactional_ids: Collection[str]) -> dict[str, Description | ErrorCode]:
        self.reach("describe", "before")
        described = await self._inner.describe(transactional_ids)
        self.reach("describe", "after")
        return described

    async def open_transactions(self, prefix: str) -> list[OpenTransaction]:
        self.reach("open_transactions", "before")
        opened = await self._inner.open_transactions(prefix)
        self.reach("open_transactions", "after")
        return opened

    async def open_writer(self, transactional_id: str) -> RowWriter:
        self.reach("open_writer", "before")
        writer = await self._inner.open_writer(transactional_id)
        self.reach("open_writer", "after")
        return CrashingWriter(writer, self)

    def patience(self, *, is_decided: bool = False) -> Patience:
        return self._inner.patience(is_decided=is_decided)


class CrashingWriter:
    """``RowWriter`` with a crash before or after a call."""

    def __init__(self, inner: RowWriter, broker: CrashingBroker) -> None:
        self._inner = inner
        self._broker = broker

    @property
    def transaction(self) -> TaskTransaction:
        return self._inner.transaction

    async def write(self, rows: Any) -> None:
        await self._inner.write(rows)
        self._broker.reach("write", "after")

    async def finish(self) -> Written:
        written = await self._inner.finish()
        self._broker.reach("finish", "after")
        return written

    async def leave(self) -> None:
        await self._inner.leave()

    async def abort(self) -> None:
        await self._inner.abort()


class CrashingSession(SinkSession):
    """Tells the broker which phase it is."""

    def __init__(self, options: WriteOptions, crash: Crash) -> None:
        self._crash = crash
        super().__init__(options)

    def make_broker(self) -> SinkBroker:
        self._crashing = CrashingBroker(self.make_cluster_broker(), self._crash)
        return self._crashing

    def begin(self, sink: str, *, plans_name_rows: bool = False) -> Permit:
        self._crashing.phase = "prelude"
        return super().begin(sink, plans_name_rows=plans_name_rows)

    def write(self, permit: Permit, query: str, batch: int, rows: Iterable[Any]) -> TaskOutcome:
        self._crashing.phase = "task"
        return super().write(permit, query, batch, rows)

    def commit(self, outcomes: Sequence[TaskOutcome], batch: int, planned: Planned = UNKNOWN_PLAN) -> None:
        self._crashing.phase = "commit"
        super().commit(outcomes, batch, planned)
        self._crashing.reach("all", "after")

    def abort(self, outcomes: Sequence[TaskOutcome], sink: str, batch: int) -> None:
        self._crashing.phase = "abort"
        super().abort(outcomes, sink, batch)


def process_of(done: Path) -> int:
    """The process that has reached its point."""
    return int(done.read_text())
