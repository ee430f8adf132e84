"""A model of a cluster, as far as the sink can tell: transactional ids, what is committed, and the state topic.

Coordinators follow Kafka's ``TransactionCoordinator`` (4.3) for both versions of the protocol: retries of an end that
has succeeded, epochs that are bumped by ends (version 2) and by fencing, producer ids that are replaced when their
epochs are used up. A partition refuses what its coordinator would not know (KIP-890), so a late record is just refused.

``ModelBroker`` is the port over it for one process. Each request can be cut off before it arrives, its response can be
lost, and it can arrive later than its sender has given it up for lost.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_broker import Ended, OpenTransaction, TopicIds, Written
from oncelog.spark_connector.sink.commit.sink_errors import ResponseLost, SinkUnavailable
from oncelog.spark_connector.sink.commit.sink_transactions import (
    LAST_EPOCH_IN_USE,
    NO_SUCH_ID,
    Description,
    Driver,
    TaskTransaction,
    driver_id,
)
from oncelog.spark_connector.sink.commit.state_record import StateRecord, decode_state

T = TypeVar("T")
TOPIC = "t"
STATE_TOPIC = "states"
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OPEN, COMMITTED, ABORTED, EMPTY = "Ongoing", "CompleteCommit", "CompleteAbort", "Empty"


@dataclass
class Id:
    """A transactional id at its coordinator."""

    producer_id: int
    epoch: int
    state: str = EMPTY
    last_epoch: int = -1
    previous_producer_id: int = -1
    rows: list[int] = field(default_factory=list)
    records: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Of the state topic: partition, sink and value."""
    sequence: int = 0


class Cluster:
    """What all processes share."""

    def __init__(self, version: int, first_epoch: int = 0) -> None:
        self.version = version
        self.first_epoch = first_epoch
        self.ids: dict[str, Id] = {}
        self.visible: list[int] = []
        self.state_log: list[dict[str, bytes]] = [{}]
        """The newest committed records, by partition of the state topic."""
        self.topic_ids = {TOPIC: b"\0"}
        """Of the topics that rows go to; there is one."""
        self.late: list[Callable[[], object]] = []
        """Requests that their senders have given up, and that may still arrive."""
        self._producer_ids = 0

    @property
    def states(self) -> dict[str, bytes]:
        """The records of a state topic that has one partition."""
        (records,) = self.state_log
        return records

    def add_state_partitions(self, count: int) -> None:
        self.state_log += [{} for _ in range(count)]

    def replace_state_topic(self) -> None:
        """Delete the state topic, and create another with as many partitions."""
        self.state_log = [{} for _ in self.state_log]
        for known in self.ids.values():
            known.records = []

    def new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    @property
    def open_ids(self) -> list[str]:
        return [name for name, known in self.ids.items() if known.state == OPEN]

    def init(self, name: str, expected: Driver | None) -> Driver | ErrorCode:
        known = self.ids.get(name)
        if known is None:
            known = self.ids[name] = Id(self.new_producer_id(), self.first_epoch)
            return Driver(known.producer_id, known.epoch)
        if expected is not None and expected.producer_id != known.producer_id:
            return FENCED
        if known.state == OPEN:
            self.fence(name)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and expected.epoch != known.epoch:
            if known.last_epoch != expected.epoch:
                return FENCED
            return Driver(known.producer_id, known.epoch)
        known.state = EMPTY
        self._bump(known)
        return Driver(known.producer_id, known.epoch)

    def _bump(self, known: Id) -> None:
        known.sequence = 0
        if known.epoch >= LAST_EPOCH_IN_USE:
            known.previous_producer_id, known.producer_id = known.producer_id, self.new_producer_id()
            known.last_epoch, known.epoch = -1, 0
        else:
            known.last_epoch, known.epoch = known.epoch, known.epoch + 1

    def fence(self, name: str) -> None:
        """Abort what is open, with the next epoch: by a successor, or after the time-out."""
        known = self.ids[name]
        self._close(known, commit=False)
        known.last_epoch, known.epoch = -1, known.epoch + 1

    def _close(self, known: Id, *, commit: bool) -> None:
        if commit:
            self.visible += known.rows
            for partition, sink, value in known.records:
                self.state_log[partition][sink] = value
        known.rows, known.records = [], []
        known.state = COMMITTED if commit else ABORTED

    def replace_topic(self) -> None:
        """Delete the topic, and create another of that name: what was written is gone, committed or not."""
        self.topic_ids = {TOPIC: bytes([self.topic_ids[TOPIC][0] + 1])}
        self.visible = []
        for known in self.ids.values():
            known.rows = []

    def is_writer(self, transaction: TaskTransaction) -> bool:
        known = self.ids[transaction.transactional_id]
        return (known.producer_id, known.epoch) == (transaction.producer_id, transaction.epoch)

    def write(self, transaction: TaskTransaction, rows: Sequence[int]) -> ErrorCode:
        if not self.is_writer(transaction):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self.ids[transaction.transactional_id]
        known.state = OPEN
        known.rows += rows
        return NONE

    def append_state(self, driver: Driver, record: StateRecord, partition: int) -> ErrorCode:
        known = self.ids[driver_id(record.sink)]
        if (known.producer_id, known.epoch) != (driver.producer_id, driver.epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known.state = OPEN
        if driver.sequence == known.sequence:
            known.records.append((partition, record.sink, record.encode()))
            known.sequence += 1
        return NONE if driver.sequence == known.sequence - 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def end(self, transaction: TaskTransaction, commit: bool) -> Ended:
        known = self.ids.get(transaction.transactional_id)
        if known is None:
            return Ended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return (self._end_1 if transaction.version < 2 else self._end_2)(known, transaction, commit)

    def _end_1(self, known: Id, transaction: TaskTransaction, commit: bool) -> Ended:
        if known.producer_id != transaction.producer_id:
            return Ended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != transaction.epoch:
            return Ended(FENCED)
        if known.state == OPEN:
            self._close(known, commit=commit)
            return Ended(NONE)
        return Ended(NONE if known.state == (COMMITTED if commit else ABORTED) else ErrorCode.INVALID_TXN_STATE)

    def _end_2(self, known: Id, transaction: TaskTransaction, commit: bool) -> Ended:
        overflown = known.previous_producer_id == transaction.producer_id and (
            transaction.epoch == LAST_EPOCH_IN_USE and known.epoch == 0
        )
        if known.producer_id != transaction.producer_id and not overflown:
            return Ended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.state in (COMMITTED, ABORTED) and (overflown or known.epoch == transaction.epoch + 1):
            same = known.state == (COMMITTED if commit else ABORTED)
            return Ended(NONE, known.producer_id, known.epoch) if same else Ended(ErrorCode.INVALID_TXN_STATE)
        if known.epoch != transaction.epoch or overflown:
            return Ended(FENCED)
        if commit and known.state != OPEN:
            return Ended(ErrorCode.INVALID_TXN_STATE)
        self._close(known, commit=commit)
        self._bump(known)
        return Ended(NONE, known.producer_id, known.epoch)


class Fate(Enum):
    """What becomes of a request."""

    RESPONDED = "it arrives, and so does the response"
    LOST = "it never arrives"
    RESPONSE_LOST = "it arrives, and the response does not"
    LATE = "it arrives after its sender has given up"


class Turn:
    """A point at which others may go on, and at which a process may die."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class ModelBroker:
    """``SinkBroker`` of one process. ``fate`` is called for every request."""

    def __init__(self, cluster: Cluster, fate: Callable[[], Fate]) -> None:
        self.cluster = cluster
        self.fate = fate
        """Also of patience: a pause that is not ``RESPONDED`` has been the last one."""
        self.homes: dict[str, TopicPartition] = {}

    async def ask(self, request: Callable[[], T], lost: T) -> T:
        await Turn()
        fate = self.fate()
        if fate is Fate.LATE:
            self.cluster.late.append(request)
            return lost
        if fate is Fate.LOST:
            return lost
        response = request()
        await Turn()
        return response if fate is Fate.RESPONDED else lost

    async def transaction_version(self) -> int:
        return self.cluster.version

    async def init_producer_id(self, transactional_id: str, expected: Driver | None = None) -> Driver | ErrorCode:
        request: Callable[[], Driver | ErrorCode] = partial(self.cluster.init, transactional_id, expected)
        return await self.ask(request, ErrorCode.NETWORK_EXCEPTION)

    async def state_partitions(self) -> list[TopicPartition]:
        await Turn()
        return [TopicPartition(STATE_TOPIC, number) for number in range(len(self.cluster.state_log))]

    def known_home(self, sink: str) -> TopicPartition | None:
        return self.homes.get(sink)

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        self.homes[sink] = home

    async def read_state(self, sink: str, home: TopicPartition, since: int | None = None) -> StateRecord | None:
        await Turn()
        value = self.cluster.state_log[home.partition].get(sink)
        return None if value is None else decode_state(sink, value)

    def state_position(self, sink: str, home: TopicPartition) -> int:
        return 0

    async def find_sinks(self, former: FormerNames) -> list[str]:
        await Turn()
        newest = [dict(records) for records in self.cluster.state_log]
        for partition, sink, value in (record for known in self.cluster.ids.values() for record in known.records):
            newest[partition][sink] = value
        found = (record for records in newest for record in records.items())
        return sorted({sink for sink, value in found if former.includes(decode_state(sink, value))})

    async def append_state(self, driver: Driver, record: StateRecord, home: TopicPartition, version: int) -> ErrorCode:
        request = partial(self.cluster.append_state, driver, record, home.partition)
        return await self.ask(request, ErrorCode.NETWORK_EXCEPTION)

    async def end(self, transactions: Sequence[TaskTransaction], *, commit: bool) -> list[Ended]:
        lost = Ended(ErrorCode.NETWORK_EXCEPTION)
        return [await self.ask(partial(self.cluster.end, each, commit), lost) for each in transactions]

    async def describe(self, transactional_ids: Collection[str]) -> dict[str, Description | ErrorCode]:
        await Turn()
        known = self.cluster.ids
        return {
            name: Description(known[name].state, known[name].producer_id, known[name].epoch)
            if name in known
            else NO_SUCH_ID
            for name in transactional_ids
        }

    async def topic_ids(self, names: Collection[str]) -> dict[str, bytes]:
        if names:
            await Turn()
        return {name: self.cluster.topic_ids[name] for name in names}

    async def open_transactions(self, prefix: str) -> list[OpenTransaction]:
        await Turn()
        names = [name for name in self.cluster.open_ids if name.startswith(prefix)]
        return [
            OpenTransaction(name, self.cluster.ids[name].producer_id, self.cluster.ids[name].epoch) for name in names
        ]

    async def open_writer(self, transactional_id: str) -> "ModelWriter":
        response = await self.init_producer_id(transactional_id)
        while response is ErrorCode.CONCURRENT_TRANSACTIONS:
            response = await self.init_producer_id(transactional_id)
        if isinstance(response, ErrorCode):
            raise ResponseLost(transactional_id)
        version = self.cluster.version
        return ModelWriter(self, TaskTransaction(transactional_id, response.producer_id, response.epoch, version))

    def patience(self, *, is_decided: bool = False) -> "ModelPatience":
        return ModelPatience(self.fate)


class ModelPatience:
    """``Patience`` that ends by chance."""

    def __init__(self, fate: Callable[[], Fate]) -> None:
        self._fate = fate

    async def wait(self, reason: ErrorCode) -> None:
        await Turn()
        if self._fate() is not Fate.RESPONDED:
            raise SinkUnavailable(reason.name)


class ModelWriter:
    """``RowWriter``: rows are numbers."""

    def __init__(self, broker: ModelBroker, transaction: TaskTransaction) -> None:
        self.transaction = transaction
        self._broker = broker
        self._rows = 0
        self._topics: TopicIds = ()

    async def write(self, rows: Any) -> None:
        """A real producer numbers its batches, so one that is sent again is not written twice; here it is not sent."""
        await Turn()
        self._topics = self._topics or tuple(self._broker.cluster.topic_ids.items())
        error = self._broker.cluster.write(self.transaction, rows)
        await Turn()
        if error is not NONE:
            raise SinkUnavailable(error.name)
        self._rows += len(rows)

    async def finish(self) -> Written:
        await Turn()
        return Written(self._rows, self._rows, self._topics)

    async def leave(self) -> None:
        """Nothing can be done with it after that."""
        self._broker = ModelBroker(Cluster(1), lambda: Fate.LOST)

    async def abort(self) -> None:
        await Turn()
        self._broker.cluster.end(self.transaction, commit=False)
