"""Which connection acts for a version-1 producer, and what another one has to do first."""

import pytest

from oncelog.coordinator.ports import NEVER
from oncelog.coordinator.transaction.connection_challenge import Action, ConnectionChallenge, is_challenged
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch, Transaction, first_metadata
from oncelog.coordinator.transaction.state_manager import OwnedPartition
from tests.unit.coordinator.transaction.world import Log

PRODUCER = ProducerIdAndEpoch(7, 0)
OLD, NEW, LATE = 1, 2, 3


class Connection:
    """A connection whose responses arrive when the test says so."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.greeted_at = NEVER
        self.received = 0
        self.callbacks: list[object] = []

    def request_number(self) -> int:
        return self.received

    def when_responded(self, callback: object) -> None:
        self.callbacks.append(callback)

    def respond(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback(self.received)  # type: ignore[operator]


def acts(owner: ConnectionChallenge, connection: Connection, action: Action = Action.COMMIT) -> bool:
    """Whether the next request of a connection takes effect."""
    connection.received += 1
    return not is_challenged(owner, PRODUCER, action, connection)


def acts_before_the_response(owner: ConnectionChallenge, connection: Connection) -> bool:
    """Whether the next request takes effect, when the response to the one before arrives only after it."""
    responses, connection.callbacks = connection.callbacks, []
    acted = acts(owner, connection)
    own, connection.callbacks = connection.callbacks, responses
    connection.respond()
    connection.callbacks = own
    return acted


@pytest.fixture
def owner() -> ConnectionChallenge:
    granted = ConnectionChallenge()
    granted.grant(PRODUCER, OLD)
    return granted


def test_request_of_the_owner_takes_effect_at_once(owner: ConnectionChallenge) -> None:
    connection = Connection(OLD)
    assert acts(owner, connection)
    assert connection.callbacks == []


def test_request_of_another_connection_takes_effect_when_it_is_repeated(owner: ConnectionChallenge) -> None:
    connection = Connection(NEW)
    assert not acts(owner, connection)
    connection.respond()
    assert acts(owner, connection)
    assert acts(owner, connection, Action.ADD)
    assert not acts(owner, Connection(OLD))


def test_repetition_received_before_the_response_arrived_is_challenged_again(owner: ConnectionChallenge) -> None:
    connection = Connection(LATE)
    assert not acts(owner, connection)
    assert not acts(owner, connection)
    connection.respond()
    assert acts(owner, connection)


def test_requests_that_were_received_when_the_response_arrived_are_no_repetitions(
    owner: ConnectionChallenge,
) -> None:
    connection = Connection(LATE)
    assert not acts(owner, connection)
    connection.received = 3  # Two more are in the buffer.
    connection.respond()
    for number in (2, 3):
        connection.received = number - 1
        assert not acts(owner, connection)
    connection.respond()
    assert acts(owner, connection)


def test_copies_that_arrive_one_after_the_other_are_no_repetitions(owner: ConnectionChallenge) -> None:
    """Each one comes as soon as the window of the connection allows: before the response to the one before is noted."""
    connection = Connection(LATE)
    assert not acts(owner, connection)
    assert not any(acts_before_the_response(owner, connection) for _ in range(6))
    connection.respond()
    assert acts(owner, connection)


def test_copies_without_number_hold_few_callbacks_and_the_repetition_still_acts(
    owner: ConnectionChallenge,
) -> None:
    connection = Connection(LATE)
    assert not any(acts(owner, connection) for _ in range(1_000))
    assert len(connection.callbacks) < 100
    connection.respond()
    assert acts(owner, connection)


def test_request_of_another_kind_is_no_repetition(owner: ConnectionChallenge) -> None:
    connection = Connection(LATE)
    assert not acts(owner, connection, Action.ADD)
    connection.respond()
    assert not acts(owner, connection, Action.COMMIT)
    connection.respond()
    assert not acts(owner, connection, Action.ABORT)


def test_late_requests_one_per_connection_never_take_effect(owner: ConnectionChallenge) -> None:
    for number in range(LATE, LATE + 10):
        late = Connection(number)
        assert not acts(owner, late)
        late.respond()
    assert acts(owner, Connection(OLD))


def test_client_between_late_requests_still_becomes_the_owner(owner: ConnectionChallenge) -> None:
    client, late = Connection(NEW), Connection(LATE)
    assert not acts(owner, client)
    client.respond()
    assert not acts(owner, late)
    assert not acts(owner, client)  # The late request has taken the place of its challenge.
    client.respond()
    assert acts(owner, client)


def test_unknown_owner_is_challenged() -> None:
    assert not acts(ConnectionChallenge(), Connection(OLD))


def test_owner_of_an_earlier_epoch_is_challenged(owner: ConnectionChallenge) -> None:
    assert is_challenged(owner, PRODUCER._replace(epoch=1), Action.ADD, Connection(OLD))


@pytest.mark.parametrize(("opened_at", "acted_at"), [(5.0, NEVER), (1.0, 5.0)])
def test_connection_greeted_after_the_last_act_and_the_load_is_the_owner_at_once(
    opened_at: float, acted_at: float
) -> None:
    """B107: whatever it carries was sent after that."""
    for greeted_at, is_owner in ((NEVER, False), (4.9, False), (5.0, False), (5.1, True)):
        partition = OwnedPartition(0, Log().elect())
        partition.opened_at = opened_at
        txn = Transaction("billing", first_metadata(PRODUCER.id, 60_000, 0))
        txn.acted_at = acted_at
        connection = Connection(NEW)
        connection.greeted_at = greeted_at
        assert partition.is_challenged(txn, PRODUCER, Action.COMMIT, connection) is not is_owner
        assert partition.is_challenged(txn, PRODUCER, Action.COMMIT, Connection(OLD))
