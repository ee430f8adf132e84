"""The life of transactions in both versions of the protocol, and every call at every time."""

from collections.abc import Callable
from itertools import product

import pytest

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    FatalProducerError,
    IllegalState,
    ProducerFenced,
    Refusal,
    TransactionAbortable,
    TransactionAborted,
    VersionNotSupported,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.negotiation import FinalizedFeatures
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.coordinator_requests import CoordinatorRequests
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig, TransactionProtocol
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.producer_state import NEXT_STATES, State
from oncelog.clients.producer.request_effects import Effect
from oncelog.clients.producer.transaction_manager import FATAL_TO_PRODUCE, TransactionManager
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.producer.test_transaction_requests import respond

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
GROUP = ConsumerGroupMetadata(group_id="readers")
OFFSETS = {ORDERS: OffsetAndMetadata(5)}
V1, V2 = FinalizedFeatures(1, {"transaction.version": 1}), FinalizedFeatures(1, {"transaction.version": 2})


class Driver:
    """A manager and the coordinators that it asks, answered one by one."""

    def __init__(
        self, features: FinalizedFeatures = V2, protocol: TransactionProtocol = "auto", *, transactional: bool = True
    ) -> None:
        config = ProducerConfig(
            bootstrap="x", transactional_id="id" if transactional else None, transaction_protocol=protocol
        )
        self.manager = TransactionManager(config)
        self.manager.features = features
        self.manager.can_bump_epoch = True
        self.requests = CoordinatorRequests(self.manager)
        self.epoch = 0

    def next(self, *, has_incomplete: bool = False) -> PendingRequest:
        request = self.requests.next_request(has_incomplete=has_incomplete)
        assert request is not None
        return request

    def nothing_to_ask(self, *, has_incomplete: bool = False) -> bool:
        return self.requests.next_request(has_incomplete=has_incomplete) is None

    def initialized(self) -> "Driver":
        self.done(self.manager.initialize())
        return self

    def done(self, result: TransactionalResult) -> None:
        """Answer everything with success until the result is there, and see it."""
        while (request := self.requests.next_request(has_incomplete=False)) is not None:
            self.succeed(request)
        assert result.is_done
        result.acknowledge()

    def succeed(self, pending: PendingRequest) -> None:
        match pending.request:
            case InitProducerId(bumped=bumped):
                self.epoch += 1 if bumped.is_valid else 0
                self.take(pending, InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch))
            case EndTxn(versions=Versions(first=5)):
                self.epoch += 1
                self.take(pending, EndTxnResponse(producer_id=7, producer_epoch=self.epoch))
            case AddPartitionsToTxn(partitions=partitions):
                self.manager.transaction.add(partitions)
                pending.result.succeed()
            case _:
                self.respond(pending, ErrorCode.NONE)

    def take(self, pending: PendingRequest, response: Message) -> Effect:
        return self.requests.handle_response(pending, response)

    def respond(self, pending: PendingRequest, error: ErrorCode) -> Effect:
        return respond(self.manager, pending, error)

    def lose(self, pending: PendingRequest) -> None:
        self.requests.handle_loss(pending, was_sent=True)

    def begun(self, partition: TopicPartition | None = ORDERS) -> "Driver":
        """In a transaction that writes to a partition."""
        self.manager.begin()
        if partition is not None:
            self.manager.add_partition(partition)
            if self.manager.protocol == 1:
                self.succeed(self.next())
        return self

    def batch(self) -> ProducerBatch:
        """A batch that was sent."""
        batch = ProducerBatch(ORDERS, 1000, 0, 0.0)
        batch.append(0, None, b"value", ())
        assert self.manager.may_send(batch)
        self.manager.sequences.sending(batch)
        return batch


# The table of states


def test_state_changes_are_those_of_the_table() -> None:
    for source, target in product(State, State):
        manager = TransactionManager(ProducerConfig(bootstrap="x", transactional_id="id"))
        manager.state.current = source
        if target in NEXT_STATES[source]:
            manager.state.move(target, "a test")
            assert manager.state.current is target
        else:
            with pytest.raises(IllegalState, match=f"{source.name} to {target.name}"):
                manager.state.move(target, "a test")
            assert manager.state.current is source


def test_fatal_error_follows_every_state_but_itself() -> None:
    assert all((State.FATAL_ERROR in NEXT_STATES[state]) == (state is not State.FATAL_ERROR) for state in State)


def in_state(state: State) -> Driver:
    """A transactional producer in any state."""
    driver = Driver()
    if state is State.UNINITIALIZED:
        return driver
    if state is State.INITIALIZING:
        driver.manager.initialize()
        return driver
    driver.initialized()
    if state is State.READY:
        return driver
    driver.begun()
    match state:
        case State.COMMITTING_TRANSACTION:
            driver.manager.commit()
        case State.ABORTING_TRANSACTION:
            driver.manager.abort()
        case State.ABORTABLE_ERROR:
            driver.manager.fail_transaction(ClientError("a reason"))
        case State.FATAL_ERROR:
            driver.manager.fail_fatally(ProducerFenced("a reason"))
    assert driver.manager.state.current is state
    return driver


CALLS: dict[str, Callable[[TransactionManager], object]] = {
    "initialize": lambda manager: manager.initialize(),
    "begin": lambda manager: manager.begin(),
    "commit": lambda manager: manager.commit(),
    "abort": lambda manager: manager.abort(),
    "send_offsets": lambda manager: manager.send_offsets(OFFSETS, GROUP),
    "send": lambda manager: manager.state.require_records_accepted(),
}
ALLOWED = {
    State.UNINITIALIZED: {"initialize"},
    State.INITIALIZING: {"initialize"},  # Waits on for the same.
    State.READY: {"begin"},
    State.IN_TRANSACTION: {"commit", "abort", "send_offsets", "send"},
    State.COMMITTING_TRANSACTION: {"commit"},
    State.ABORTING_TRANSACTION: {"abort"},
    State.ABORTABLE_ERROR: {"abort"},
    State.FATAL_ERROR: set(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_call_in_each_state_succeeds_or_raises_as_listed(state: State, call: str) -> None:
    driver = in_state(state)
    manager = driver.manager
    if call in ALLOWED[state]:
        CALLS[call](manager)
        return
    kind = {State.ABORTABLE_ERROR: TransactionAbortable, State.FATAL_ERROR: ProducerFenced}.get(state, IllegalState)
    with pytest.raises((kind, IllegalState)) as raised:
        CALLS[call](manager)
    if kind is ProducerFenced:
        assert type(raised.value) is ProducerFenced
    assert manager.state.current is state
    assert manager.state.accepts_records == (state is State.IN_TRANSACTION)


@pytest.mark.parametrize(
    ("state", "call", "says"),
    [
        (State.UNINITIALIZED, "begin", "begin_transaction is not possible now: call init_transactions first"),
        (State.UNINITIALIZED, "commit", "commit_transaction is not possible now: call init_transactions first"),
        (State.UNINITIALIZED, "send", "call init_transactions first"),
        (State.UNINITIALIZED, "send_offsets", "call init_transactions first"),
        (State.READY, "initialize", "init_transactions is not possible now: it is called once"),
        (State.READY, "commit", "commit_transaction is not possible now: call begin_transaction first"),
        (State.READY, "send", "call begin_transaction first"),
        (State.IN_TRANSACTION, "begin", "begin_transaction is not possible now: commit or abort the transaction first"),
    ],
    ids=lambda value: value.name if isinstance(value, State) else value,
)
def test_call_out_of_turn_is_refused_with_the_call_that_comes_first(state: State, call: str, says: str) -> None:
    with pytest.raises(IllegalState, match=says):
        CALLS[call](in_state(state).manager)


def test_transactional_call_without_transactional_id_raises() -> None:
    manager = Driver(transactional=False).manager
    for call in ("initialize", "begin", "commit", "abort", "send_offsets"):
        with pytest.raises(IllegalState, match="transactional_id"):
            CALLS[call](manager)
    assert manager.state.accepts_records


# Version 1


def test_version_1_adds_a_partition_before_it_writes() -> None:
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    batch = ProducerBatch(ORDERS, 1000, 0, 0.0)
    assert not driver.manager.may_send(batch)
    add = driver.next(has_incomplete=True)
    assert isinstance(add.request, AddPartitionsToTxn)
    assert add.request.partitions == {ORDERS}
    assert not driver.manager.may_send(batch)
    driver.succeed(add)
    assert driver.manager.may_send(batch)
    driver.manager.add_partition(ORDERS)
    assert driver.nothing_to_ask(has_incomplete=True)


def test_version_1_adds_partitions_once_while_they_are_being_added() -> None:
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    add = driver.next()
    driver.manager.add_partition(ORDERS)
    driver.manager.add_partition(OTHERS)
    respond_to_add = driver.next()
    assert isinstance(respond_to_add.request, AddPartitionsToTxn)
    assert respond_to_add.request.partitions == {OTHERS}
    driver.succeed(add)


def test_version_1_adds_the_group_then_its_offsets_then_ends() -> None:
    driver = Driver(V1).initialized()
    driver.manager.begin()
    offsets = driver.manager.send_offsets(OFFSETS, GROUP)
    commit = driver.manager.commit()
    add = driver.next()
    assert isinstance(add.request, AddOffsetsToTxn)
    driver.take(add, AddOffsetsToTxnResponse())
    assert not offsets.is_done
    committed = driver.next()
    assert isinstance(committed.request, TxnOffsetCommit)
    driver.respond(committed, ErrorCode.NONE)
    assert offsets.is_done
    assert isinstance(driver.next().request, EndTxn)
    assert not commit.is_done


def test_version_1_keeps_epoch_and_sequences_after_a_transaction() -> None:
    driver = Driver(V1).initialized().begun()
    batch = driver.batch()
    driver.manager.sequences.completed(batch, 0)
    driver.done(driver.manager.commit())
    assert driver.manager.producer == (7, 0)
    driver.begun()
    assert driver.batch().base_sequence == 1


# Version 2


def test_version_2_writes_at_once() -> None:
    driver = Driver(V2).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    assert driver.nothing_to_ask(has_incomplete=True)
    assert driver.manager.may_send(ProducerBatch(ORDERS, 1000, 0, 0.0))


def test_version_2_commits_offsets_without_adding_the_group() -> None:
    driver = Driver(V2).initialized().begun(None)
    driver.manager.send_offsets(OFFSETS, GROUP)
    assert isinstance(driver.next().request, TxnOffsetCommit)


def test_version_2_takes_id_and_epoch_from_each_end_and_restarts_sequences() -> None:
    driver = Driver(V2).initialized().begun()
    driver.manager.sequences.completed(driver.batch(), 0)
    result = driver.manager.commit()
    driver.take(
        driver.next(), EndTxnResponse(producer_id=8, producer_epoch=0)
    )  # The epochs of the old id were used up.
    result.acknowledge()
    assert driver.manager.producer == ProducerIdAndEpoch(8, 0)
    driver.begun()
    batch = driver.batch()
    assert (batch.producer, batch.base_sequence) == (ProducerIdAndEpoch(8, 0), 0)


@pytest.mark.parametrize("features", [V1, V2], ids=["1", "2"])
def test_empty_transaction_ends_without_a_request(features: FinalizedFeatures) -> None:
    """B18, B19."""
    driver = Driver(features).initialized()
    for end in (driver.manager.commit, driver.manager.abort, driver.manager.commit):
        driver.manager.begin()
        result = end()
        assert driver.nothing_to_ask()
        result.acknowledge()
        assert driver.manager.state.current is State.READY


@pytest.mark.parametrize("features", [V1, V2], ids=["1", "2"])
def test_end_of_transaction_waits_for_its_records(features: FinalizedFeatures) -> None:
    driver = Driver(features).initialized().begun()
    driver.manager.commit()
    assert driver.nothing_to_ask(has_incomplete=True)
    assert isinstance(driver.next().request, EndTxn)


@pytest.mark.parametrize("features", [V1, V2], ids=["1", "2"])
def test_end_without_response_is_repeated_unchanged(features: FinalizedFeatures) -> None:
    driver = Driver(features).initialized().begun()
    result = driver.manager.commit()
    end = driver.next()
    message, versions = end.request.message(), end.request.versions
    driver.lose(end)
    again = driver.next()
    assert (again.request.message(), again.request.versions) == (message, versions)
    driver.succeed(again)
    result.acknowledge()


# Which version


def test_upgrade_takes_effect_after_the_transaction_and_bumps_the_epoch() -> None:
    driver = Driver(V1).initialized().begun()
    driver.manager.features = FinalizedFeatures(2, {"transaction.version": 2})
    assert driver.manager.protocol == 1
    result = driver.manager.commit()
    end = driver.next()
    assert end.request.versions.last == 4
    driver.respond(end, ErrorCode.NONE)
    assert not result.is_done
    assert driver.manager.state.current is State.INITIALIZING
    bump = driver.next()
    assert isinstance(bump.request, InitProducerId)
    assert bump.request.bumped == (7, 0)
    assert bump.request.versions.first == 3
    driver.succeed(bump)
    result.acknowledge()
    assert (driver.manager.protocol, driver.manager.producer) == (2, ProducerIdAndEpoch(7, 1))


def test_upgrade_takes_effect_after_an_empty_transaction() -> None:
    driver = Driver(V1).initialized()
    driver.manager.features = V2
    driver.manager.begin()
    driver.done(driver.manager.abort())
    assert (driver.manager.protocol, driver.manager.producer.epoch) == (2, 1)


def test_downgrade_takes_effect_after_the_transaction() -> None:
    driver = Driver(V2).initialized().begun()
    driver.manager.features = FinalizedFeatures(2, {"transaction.version": 0})
    result = driver.manager.commit()
    end = driver.next()
    assert end.request.versions.first == 5
    driver.succeed(end)
    result.acknowledge()
    assert (driver.manager.protocol, driver.manager.producer.epoch) == (1, 1)
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    assert isinstance(driver.next().request, AddPartitionsToTxn)


def test_protocol_setting_selects_version_1_or_requires_version_2() -> None:
    assert Driver(V2, "1").initialized().manager.protocol == 1
    assert Driver(V2, "2").initialized().manager.protocol == 2
    driver = Driver(V1, "2")
    result = driver.manager.initialize()
    driver.succeed(driver.next())
    with pytest.raises(VersionNotSupported):
        result.acknowledge()
    driver.manager.features = V2
    driver.initialized()
    assert driver.manager.protocol == 2


# Errors


def fail_batch(driver: Driver, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
    batch = driver.batch()
    driver.manager.failed(batch, code, BrokerRefused("orders-0", Refusal(error=code)))


@pytest.mark.parametrize("features", [V1, V2], ids=["1", "2"])
def test_failed_record_fails_the_transaction_not_the_producer(features: FinalizedFeatures) -> None:
    driver = Driver(features).initialized().begun()
    fail_batch(driver)
    for call in ("commit", "send_offsets", "send"):
        with pytest.raises(TransactionAbortable) as raised:
            CALLS[call](driver.manager)
        assert isinstance(raised.value.__cause__, BrokerRefused)
    driver.done(driver.manager.abort())
    assert driver.manager.state.current is State.READY
    assert driver.manager.producer.epoch == 1  # Nobody knows any more which sequences were used.
    driver.begun()
    assert driver.batch().base_sequence == 0
    driver.done(driver.manager.commit())


def test_failed_record_without_epoch_bump_fails_the_producer() -> None:
    """Coordinators before Kafka 2.5."""
    driver = Driver(V1).initialized().begun()
    driver.manager.can_bump_epoch = False
    fail_batch(driver)
    assert driver.manager.state.current is State.FATAL_ERROR


@pytest.mark.parametrize("features", [V1, V2], ids=["1", "2"])
def test_failed_record_while_committing_fails_the_commit(features: FinalizedFeatures) -> None:
    driver = Driver(features).initialized().begun()
    batch = driver.batch()
    commit = driver.manager.commit()
    driver.manager.failed(batch, ErrorCode.INVALID_RECORD, ClientError("no"))
    assert driver.nothing_to_ask()
    with pytest.raises(TransactionAbortable):
        commit.acknowledge()
    driver.done(driver.manager.abort())


def test_failed_record_while_aborting_does_not_fail_the_abort() -> None:
    driver = Driver(V1).initialized().begun()
    batch = driver.batch()
    abort = driver.manager.abort()
    driver.manager.failed(batch, ErrorCode.INVALID_RECORD, ClientError("no"))
    driver.done(abort)
    assert (driver.manager.state.current, driver.manager.producer.epoch) == (State.READY, 1)


@pytest.mark.parametrize("code", sorted(FATAL_TO_PRODUCE))
@pytest.mark.parametrize("transactional", [True, False])
def test_fatal_error_of_a_batch_fails_the_producer(code: ErrorCode, transactional: bool) -> None:
    driver = Driver(V2, transactional=transactional)
    if transactional:
        driver.initialized().begun()
    else:
        driver.succeed(driver.next(has_incomplete=True))
    fail_batch(driver, code)
    with pytest.raises(FatalProducerError) as raised:
        driver.manager.state.require_records_accepted()
    assert isinstance(raised.value, ProducerFenced) == (code == ErrorCode.PRODUCER_FENCED)


def test_idempotent_producer_continues_under_the_next_epoch_after_a_failure() -> None:
    driver = Driver(transactional=False)
    assert driver.nothing_to_ask()
    driver.succeed(driver.next(has_incomplete=True))
    fail_batch(driver)
    assert driver.manager.settle() == []
    assert driver.manager.producer == (7, 1)
    assert driver.manager.state.accepts_records


def test_idempotent_producer_without_id_requests_one_again_for_later_records() -> None:
    driver = Driver(transactional=False)
    driver.respond(driver.next(has_incomplete=True), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert driver.manager.refusal is not None
    assert driver.nothing_to_ask()
    driver.succeed(driver.next(has_incomplete=True))
    assert driver.manager.producer == (7, 0)


def test_fatal_error_fails_all_waiting_calls() -> None:
    driver = Driver(V1).initialized().begun()
    offsets = driver.manager.send_offsets(OFFSETS, GROUP)
    commit = driver.manager.commit()
    driver.manager.fail_fatally(ProducerFenced("by another"))
    for result in (offsets, commit):
        with pytest.raises(ProducerFenced):
            result.acknowledge()
    assert driver.nothing_to_ask()


def test_first_fatal_error_stays() -> None:
    driver = Driver().initialized()
    driver.manager.fail_fatally(ProducerFenced("by another"))
    driver.manager.fail_fatally(FatalProducerError("later"))
    with pytest.raises(ProducerFenced, match="by another"):
        driver.manager.begin()


def test_response_after_a_fatal_error_changes_nothing() -> None:
    driver = Driver(transactional=False)
    init = driver.next(has_incomplete=True)
    driver.manager.fail_fatally(FatalProducerError("a bug"))
    driver.succeed(init)
    assert driver.manager.state.current is State.FATAL_ERROR
    assert driver.manager.producer == NO_PRODUCER
    driver = Driver().initialized().begun()
    commit = driver.manager.commit()
    end = driver.next()
    driver.manager.fail_fatally(FatalProducerError("a bug"))
    driver.succeed(end)
    assert driver.manager.state.current is State.FATAL_ERROR
    with pytest.raises(FatalProducerError):
        commit.acknowledge()


def test_refused_epoch_bump_is_fatal() -> None:
    driver = Driver(V1).initialized().begun()
    fail_batch(driver)
    abort = driver.manager.abort()
    driver.succeed(driver.next())
    assert driver.respond(driver.next(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) is Effect.FATAL
    with pytest.raises(FatalProducerError):
        abort.acknowledge()


# Time-outs: a call that was given up waits on when it is called again


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_call_that_timed_out_can_be_repeated_and_no_other_made(end: str) -> None:
    driver = Driver().initialized().begun()
    first = CALLS[end](driver.manager)
    assert CALLS[end](driver.manager) is first
    for other in {"begin", "commit", "abort", "send_offsets"} - {end}:
        with pytest.raises(IllegalState, match=r"timed out|not possible|no transaction"):
            CALLS[other](driver.manager)
    request = driver.next()
    driver.succeed(request)
    for other in {"begin", "commit", "abort"} - {end}:
        with pytest.raises(IllegalState, match="timed out"):
            CALLS[other](driver.manager)
    again = CALLS[end](driver.manager)
    assert again is first
    first.acknowledge()
    driver.manager.begin()


def test_error_of_a_call_that_timed_out_is_raised_by_its_repetition() -> None:
    driver = Driver().initialized().begun()
    driver.manager.commit()
    driver.respond(driver.next(), ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(IllegalState, match="timed out"):
        driver.manager.abort()
    with pytest.raises(TransactionAbortable):
        driver.manager.commit().acknowledge()
    driver.done(driver.manager.abort())


# Aborting


def test_abort_does_not_wait_for_offsets() -> None:
    driver = Driver(V2).initialized().begun()
    offsets = driver.manager.send_offsets(OFFSETS, GROUP)
    request = driver.next()
    driver.respond(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    abort = driver.manager.abort()
    with pytest.raises(TransactionAborted):
        offsets.acknowledge()
    assert isinstance(driver.next().request, EndTxn)
    assert not abort.is_done


def test_offsets_in_flight_while_aborting_are_not_repeated() -> None:
    driver = Driver(V2).initialized().begun()
    offsets = driver.manager.send_offsets(OFFSETS, GROUP)
    request = driver.next()
    driver.manager.abort()
    driver.respond(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(TransactionAborted):
        offsets.acknowledge()
    assert isinstance(driver.next().request, EndTxn)


def test_abort_waits_for_lost_partition_that_may_have_begun_the_transaction() -> None:
    """Otherwise it would stay open there until it times out, which fences the producer."""
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    add = driver.next()
    driver.lose(add)
    driver.manager.abort()
    assert driver.next() is add
    driver.succeed(add)
    assert isinstance(driver.next().request, EndTxn)


@pytest.mark.parametrize("when", ["aborting", "after an error"])
@pytest.mark.parametrize("lost_before", [False, True])
@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_abort_with_partition_that_cannot_be_added_does_not_wait_for_it(
    error: ErrorCode, lost_before: bool, when: str
) -> None:
    """What the coordinator refused has not begun the transaction; what was lost before, the next epoch ends."""
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    add = driver.next()
    if lost_before:
        driver.lose(add)
        assert driver.next() is add
    if when == "aborting":
        abort = driver.manager.abort()
        driver.respond(add, error)
    else:
        driver.respond(add, error)
        driver.manager.fail_transaction(ClientError("a reason"))
        assert driver.nothing_to_ask()
        abort = driver.manager.abort()
    epoch = driver.manager.producer.epoch
    driver.done(abort)
    assert add.attempts == 1 + lost_before
    assert driver.manager.producer.epoch == epoch + lost_before
    driver.begun()


def test_abort_without_epoch_bump_waits_for_lost_partition_also_when_refused_later() -> None:
    driver = Driver(V1).initialized()
    driver.manager.can_bump_epoch = False
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    add = driver.next()
    driver.lose(add)
    driver.manager.abort()
    assert driver.next() is add
    driver.respond(add, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert driver.next() is add


def test_abort_with_partition_that_cannot_be_added_ends_those_that_were() -> None:
    driver = Driver(V1).initialized().begun()
    driver.manager.add_partition(OTHERS)
    add = driver.next()
    abort = driver.manager.abort()
    driver.respond(add, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    end = driver.next()
    assert isinstance(end.request, EndTxn)
    driver.succeed(end)
    driver.done(abort)


@pytest.mark.parametrize("features", [V1, V2], ids=["version 1", "version 2"])
@pytest.mark.parametrize("calls", [2, 3])
def test_overlapping_offset_commits_keep_the_order_of_the_calls_through_retries(
    features: FinalizedFeatures, calls: int
) -> None:
    """Every request is refused once or lost once: each takes its old place, so the last call's offset stays."""
    driver = Driver(features).initialized()
    driver.manager.begin()
    results = [driver.manager.send_offsets({ORDERS: OffsetAndMetadata(10 * call)}, GROUP) for call in range(calls)]
    other = ConsumerGroupMetadata(group_id="others")
    results.append(driver.manager.send_offsets(OFFSETS, other))
    committed: dict[str, list[int]] = {GROUP.group_id: [], other.group_id: []}
    while (request := driver.requests.next_request(has_incomplete=False)) is not None:
        if isinstance(request.request, TxnOffsetCommit):
            committed[request.request.group.group_id].append(request.request.offsets[ORDERS].offset)
        if request.attempts > 1:
            driver.succeed(request)
        elif len(committed[GROUP.group_id]) % 2:
            driver.lose(request)
        else:
            driver.respond(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert all(result.is_done and result.error is None for result in results)
    assert committed[GROUP.group_id] == [10 * call for call in range(calls) for _ in range(2)]
    assert committed[other.group_id] == [5, 5]


def test_partitions_without_a_request_are_not_added_before_an_abort() -> None:
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    driver.done(driver.manager.abort())
    assert driver.nothing_to_ask()


def test_lost_request_after_an_error_is_decided_before_the_abort() -> None:
    driver = Driver(V1).initialized()
    driver.manager.begin()
    driver.manager.add_partition(ORDERS)
    add = driver.next()
    driver.lose(add)
    driver.manager.fail_transaction(ClientError("a reason"))
    assert driver.next() is add
    driver.respond(add, ErrorCode.CONCURRENT_TRANSACTIONS)
    abort = driver.manager.abort()
    assert driver.next() is add
    assert driver.take(add, AddPartitionsToTxnResponse()) is Effect.ABORTABLE
    driver.done(abort)


def test_refused_batch_of_a_failed_transaction_is_not_retried() -> None:
    driver = Driver().initialized().begun()
    batch = driver.batch()
    driver.manager.fail_transaction(ClientError("a reason"))
    assert not driver.manager.can_retry(batch, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert driver.manager.can_retry(batch, ErrorCode.NETWORK_EXCEPTION, -1)
