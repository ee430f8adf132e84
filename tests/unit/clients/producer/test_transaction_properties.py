"""Whatever is refused, lost or late, whenever: a commit that returns has written all, an abort nothing, neither hangs.

A transactional producer without sockets, a model of its coordinator and partitions, and a wire in the hands of a
seeded script: every request of a coordinator may be refused with any error, carried out and its response lost, or lost.
A producer that ends by a fatal error is replaced by another of the same id, while what it sent may still arrive.
"""

from collections import Counter
from enum import Enum
from random import Random

import pytest

from oncelog.clients.errors import ClientError
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.negotiation import FinalizedFeatures
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.request_effects import Effect
from oncelog.clients.producer.transaction_manager import MAYBE_WRITTEN
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TxnOffsetCommit,
)
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.producer.broker_model import refusal
from tests.unit.clients.producer.coordinator_model import PRODUCER_ID, CoordinatorModel
from tests.unit.clients.producer.pure_producer import PureProducer, Request, Wire, partition_of
from tests.unit.clients.producer.test_transaction_requests import respond

PARTITIONS = 2
STEPS = 800
SEEDS = 100
MOST_STEPS_TO_HEAL = 400
GROUP = ConsumerGroupMetadata(group_id="readers")
OFFSETS = {TopicPartition("orders", 0): OffsetAndMetadata(5), TopicPartition("orders", 1): OffsetAndMetadata(6)}
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
COORDINATOR_ERRORS = (*sorted(RETRIABLE), ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID)
FATAL_ERRORS = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class Fate(Enum):
    """What the application knows of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class World:
    """An application that commits and aborts, and a coordinator that is not always well."""

    def __init__(self, seed: int, protocol: int) -> None:
        self.rng = Random(seed)
        self.protocol = protocol
        self.coordinator = CoordinatorModel(PARTITIONS)
        self.wire = Wire()
        self.fault = self.rng.choice((0.0, 0.02, 0.1, 0.3))
        self.is_healed = False
        self.values: list[dict[int, list[bytes]]] = []
        """Of each transaction, what was sent to each partition."""
        self.fates: list[Fate] = []
        self.results: list[TransactionalResult] = []
        self.errors: list[ClientError] = []
        """What calls raised."""
        self.count = 0
        self.new_producer()

    def new_producer(self) -> None:
        config = ProducerConfig(
            bootstrap="x",
            transactional_id="id",
            transaction_protocol="auto",
            batch_bytes=512,
            linger_ms=0,
            delivery_timeout_ms=2_000,
            request_timeout_ms=1_000,
        )
        self.producer = PureProducer(config, PARTITIONS)
        self.manager = self.producer.manager
        self.requests = self.producer.requests
        self.manager.features = FinalizedFeatures(1, {"transaction.version": self.protocol})
        self.manager.can_bump_epoch = True
        self.waiting: TransactionalResult | None = None
        self._await(self.manager.initialize())

    def _await(self, result: TransactionalResult) -> None:
        self.results.append(result)
        self.waiting = result

    # The application

    def step(self) -> None:
        weights = {"application": 6, "send": 8, "request": 8, "carry out": 9, "respond": 9, "ask": 8, "wait": 2}
        weights |= {"lose": 1 if self.fault else 0, "late": 0 if self.protocol == 1 else 2}
        name = self.rng.choices(list(weights), list(weights.values()))[0]
        getattr(self, name.replace(" ", "_"))()
        self._settle()

    def application(self) -> None:
        """What the application does next, if it does not wait."""
        if self.waiting is not None:
            if self.waiting.is_done:
                self._see()
            return
        match self.manager.state.current:
            case State.READY:
                self.manager.begin()
                self.values.append({})
                self.fates.append(Fate.UNKNOWN)
            case State.IN_TRANSACTION:
                choice = self.rng.random()
                if choice < 0.5:
                    self._await(self.manager.commit())
                elif choice < 0.7:
                    self._await(self.manager.abort())
                elif choice < 0.9:
                    self._await(self.manager.send_offsets(OFFSETS, GROUP))
            case State.ABORTABLE_ERROR:
                self._await(self.manager.abort())
            case State.FATAL_ERROR:
                self.new_producer()

    def _see(self) -> None:
        """The call that the application waited for is over."""
        result, self.waiting = self.waiting, None
        assert result is not None
        try:
            result.acknowledge()
        except ClientError as error:
            self.errors.append(error)
            if result.operation == "init_transactions":
                if not error.is_fatal or self.manager.state.current is State.UNINITIALIZED:
                    self._await(self.manager.initialize())
                else:
                    self.new_producer()
            return
        if result.operation == "commit_transaction":
            self.fates[-1] = Fate.COMMITTED
        elif result.operation == "abort_transaction":
            self.fates[-1] = Fate.ABORTED

    def send(self) -> None:
        if self.manager.state.accepts_records and self.waiting is None:
            self._send_to(self.rng.randrange(PARTITIONS))

    def _send_to(self, partition: int) -> None:
        value = b"%06d" % self.count + bytes(200)
        self.count += 1
        self.producer.send(partition, value)
        self.values[-1].setdefault(partition, []).append(value)

    def wait(self) -> None:
        self.producer.now += self.rng.choice((0.01, 0.1, 0.5)) if self.fault else 0.001

    # The wire to the partitions

    def request(self) -> None:
        if len(self.wire.open) < 5 and (batches := self.producer.drain()):
            encoded = [bytes(batch.encode(self.producer.config.codec)) for batch in batches]
            self.wire.open.append(Request(batches, encoded))

    def carry_out(self) -> None:
        request = next((each for each in self.wire.open if each.responses is None), None)
        if request is None:
            return
        if self._fails():
            error = self.rng.choice(REFUSALS)
            request.responses = [refusal(error) for _ in request.batches]
            return
        self._carry_out(request)
        if self._fails():
            request.responses = [refusal(self.rng.choice(sorted(MAYBE_WRITTEN))) for _ in request.batches]

    def _carry_out(self, request: Request) -> None:
        request.responses = [
            self.coordinator.produce(partition_of(batch), data, protocol=self.protocol)
            for batch, data in request.parts()
        ]

    def respond(self) -> None:
        if self.wire.open and self.wire.open[0].responses is not None:
            request = self.wire.open.popleft()
            assert request.responses is not None
            for batch, each in zip(request.batches, request.responses, strict=True):
                self.producer.delivery.handle_response(batch, each, self.producer.now)

    def lose(self) -> None:
        lost, self.wire.open = list(self.wire.open), type(self.wire.open)()
        for request in lost:
            if request.responses is None:
                self.wire.late.append(request)
            for batch in request.batches:
                self.producer.delivery.handle_loss(batch, ErrorCode.NETWORK_EXCEPTION, self.producer.now)

    def late(self) -> None:
        if self.wire.late:
            self._carry_out(self.wire.late.popleft())

    # The wire to the coordinator

    def _fails(self) -> bool:
        return not self.is_healed and self.rng.random() < self.fault

    def ask(self) -> None:
        pending = self.requests.next_request(has_incomplete=bool(self.producer.accumulator.incomplete))
        if pending is None:
            return
        if self._fails():
            kind = self.rng.random()
            if kind < 0.3:
                self.requests.handle_loss(pending, was_sent=True)
            elif kind < 0.95:
                respond(self.manager, pending, self.rng.choice(COORDINATOR_ERRORS))
            else:
                respond(self.manager, pending, self.rng.choice(FATAL_ERRORS))
            return
        error = self._carried_out(pending.request)
        if self._fails():
            self.requests.handle_loss(pending, was_sent=True)
        else:
            self._tell(pending, error)

    def _carried_out(self, request: TransactionRequest) -> ErrorCode:
        coordinator, epoch = self.coordinator, self.manager.producer.epoch
        match request:
            case InitProducerId():
                return coordinator.init(request.bumped.epoch)
            case AddPartitionsToTxn():
                return max(coordinator.add(epoch, topic_partition.partition) for topic_partition in request.partitions)
            case AddOffsetsToTxn():
                return coordinator.add(epoch, None)
            case TxnOffsetCommit():
                return coordinator.add(epoch, None) if self.protocol == 2 else ErrorCode.NONE
            case EndTxn():
                return coordinator.end(epoch, commit=request.commit, protocol=self.protocol)
        raise AssertionError(request)

    def _tell(self, pending: PendingRequest, error: ErrorCode) -> Effect:
        epoch = self.coordinator.epoch
        match pending.request:
            case InitProducerId():
                return self.requests.handle_response(
                    pending, InitProducerIdResponse(error_code=error, producer_id=PRODUCER_ID, producer_epoch=epoch)
                )
            case EndTxn() if self.protocol == 2 and not error:
                return self.requests.handle_response(
                    pending, EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=epoch)
                )
            case AddPartitionsToTxn(partitions=partitions) if not error:
                self.manager.transaction.add(partitions)
                pending.result.succeed()
                return Effect.DONE
        return respond(self.manager, pending, error)

    # The end

    def heal(self) -> None:
        """No more faults: whatever the application waits for comes, and the next transaction commits."""
        self.is_healed = True
        self._until_ready()
        self.application()
        for partition in range(PARTITIONS):
            self._send_to(partition)
        self._until_ready()
        assert self.fates[-1] is Fate.COMMITTED, self.errors[-1:]

    def _until_ready(self) -> None:
        for _ in range(MOST_STEPS_TO_HEAL):
            if self.waiting is None and self.manager.state.current is State.READY:
                assert not self.producer.accumulator.incomplete
                return
            if self.waiting is None and self.manager.state.current is State.IN_TRANSACTION:
                self._await(self.manager.commit())
            else:
                self.application()
            for action in (self.request, self.carry_out, self.respond, self.ask, self._settle):
                action()
            self.producer.now += 0.01
        raise AssertionError(
            f"still {self.manager.state.current.name}, waiting for {self.waiting and self.waiting.operation}"
        )

    def _settle(self) -> None:
        self.producer.delivery.expire(self.producer.now)
        self.producer.delivery.settle()

    def check(self) -> None:
        while self.wire.late:
            self.late()
        for partition in range(PARTITIONS):
            visible = self.coordinator.visible[partition]
            assert visible == sorted(set(visible)), "twice, or out of order"
            for fate, values in zip(self.fates, self.values, strict=True):
                mine = values.get(partition, [])
                seen = [value for value in visible if value in mine]
                if fate is Fate.COMMITTED:
                    assert seen == mine, "a committed record is missing"
                elif fate is Fate.ABORTED:
                    assert not seen, "an aborted record is visible"
                else:
                    assert seen in ([], mine), "a torn transaction"
        if not self.fault:
            assert not self.errors
        assert all(result.is_done for result in self.results)
        assert all(record.fates == 1 for record in self.producer.sent)


@pytest.mark.parametrize("protocol", [1, 2])
def test_transactions_are_whole_whatever_happens(protocol: int) -> None:
    fates: Counter[Fate] = Counter()
    for seed in range(SEEDS):
        world = World(seed, protocol)
        try:
            for _ in range(STEPS):
                world.step()
            world.heal()
            world.check()
        except Exception as error:
            error.add_note(f"seed {seed}, protocol {protocol}")
            raise
        fates.update(world.fates)
    assert fates[Fate.COMMITTED] > SEEDS * 2, fates
    assert fates[Fate.ABORTED] > SEEDS, fates
    assert fates[Fate.UNKNOWN] > 2, fates
