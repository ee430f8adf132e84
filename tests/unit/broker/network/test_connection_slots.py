"""Which connection is closed when one more comes than there may be."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.network.connection_slots import SILENCE_SECONDS, ConnectionSlots, Decision


@dataclass(eq=False)
class Client:
    """A connection. It counts how often the slots look at it."""

    accepted_at: float = 0.0
    looks: int = 0
    sent_at: list[float] = field(default_factory=list)
    """When each of its requests came."""

    @property
    def has_sent_request(self) -> bool:
        self.looks += 1
        return bool(self.sent_at)

    @property
    def last_activity(self) -> float:
        self.looks += 1
        return self.sent_at[-1] if self.sent_at else self.accepted_at


class Server:
    """Slots for two connections, or as many as are said."""

    def __init__(self, most: int = 2) -> None:
        self.slots: ConnectionSlots[Client] = ConnectionSlots()
        self._most = most

    def connect(
        self, at: float, *, client: Client | None = None, has_descriptor: bool = True, protected: bool = False
    ) -> Decision[Client]:
        return self.slots.take(
            client or Client(accepted_at=at),
            at,
            max_connections=self._most,
            has_descriptor=has_descriptor,
            is_protected=protected,
        )

    def accept(self, at: float, *, sent_at: float | None = None, protected: bool = False) -> Client:
        """Have a client connect for which there is a slot."""
        client = Client(accepted_at=at, sent_at=[] if sent_at is None else [sent_at])
        assert self.connect(at, client=client, protected=protected) == Decision(is_accepted=True)
        return client


REFUSED: Decision[Client] = Decision(is_accepted=False)


def test_connection_beyond_limit_displaces_longest_silent_one_after_grace() -> None:
    server = Server()
    first, second = server.accept(1), server.accept(2)
    assert server.connect(0.9 + SILENCE_SECONDS) == REFUSED
    assert server.connect(1 + SILENCE_SECONDS) == Decision(is_accepted=True, displaced=first)
    assert server.connect(1 + SILENCE_SECONDS) == REFUSED
    assert server.connect(2 + SILENCE_SECONDS) == Decision(is_accepted=True, displaced=second)
    assert len(server.slots) == 2


def test_connection_that_has_sent_a_request_is_not_displaced_on_its_own_listener() -> None:
    server = Server()
    server.accept(0, sent_at=0.1)
    silent = server.accept(1)
    assert server.connect(1000) == Decision(is_accepted=True, displaced=silent)
    assert server.connect(1000) == REFUSED


def test_connection_without_descriptor_displaces_a_silent_one() -> None:
    server = Server(most=10)
    silent = server.accept(0)
    assert server.connect(1, has_descriptor=False) == REFUSED
    decision = server.connect(SILENCE_SECONDS, has_descriptor=False)
    assert decision == Decision(is_accepted=True, displaced=silent)


@pytest.mark.parametrize("protected", [True, False])
@pytest.mark.parametrize("has_descriptor", [True, False])
def test_silent_connections_on_the_protected_listener_are_displaced(protected: bool, has_descriptor: bool) -> None:
    server = Server(most=3)
    client = server.accept(0, sent_at=0.1)
    silent = [server.accept(1, protected=True) for _ in range(2)]
    for each in silent:
        decision = server.connect(1 + SILENCE_SECONDS, has_descriptor=has_descriptor, protected=protected)
        assert decision == Decision(is_accepted=True, displaced=each)
    expected = Decision(is_accepted=True, displaced=client) if protected else REFUSED
    assert server.connect(1 + SILENCE_SECONDS, has_descriptor=has_descriptor, protected=protected) == expected


def test_protected_connection_that_has_sent_a_request_is_never_displaced() -> None:
    server = Server(most=1)
    server.accept(0, sent_at=0.1, protected=True)
    assert server.connect(1000) == REFUSED
    assert server.connect(1000, protected=True, has_descriptor=False) == REFUSED
    assert server.connect(1000, protected=True) == Decision(is_accepted=True)


def test_released_slot_is_given_again() -> None:
    server = Server(most=1)
    server.slots.release(server.accept(0))
    server.accept(0)
    assert server.connect(0) == REFUSED


def test_protected_connection_displaces_least_recently_used_one_of_other_listeners() -> None:
    server = Server(most=3)
    busy, idle = server.accept(0, sent_at=30), server.accept(0, sent_at=20)
    server.accept(3, sent_at=3, protected=True)
    assert server.connect(30, protected=True) == Decision(is_accepted=True, displaced=idle)
    busy.sent_at.append(31)
    assert server.connect(32, protected=True) == Decision(is_accepted=True, displaced=busy)


def test_protected_connection_goes_beyond_max_connections_but_not_beyond_descriptors() -> None:
    server = Server(most=0)
    server.accept(0, sent_at=1, protected=True)
    server.accept(100, sent_at=100, protected=True)
    assert server.connect(100, protected=True, has_descriptor=False) == REFUSED
    assert server.connect(100) == REFUSED
    assert len(server.slots) == 2


@given(st.lists(st.tuples(st.sampled_from(["accept", "use", "protected", "lose"]), st.integers(0, 7)), max_size=60))
def test_displaced_connection_is_the_least_recently_used_whatever_came_before(steps: list[tuple[str, int]]) -> None:
    server, others, now = Server(most=0), dict[Client, None](), 0.0
    roomy = Server(most=1_000)
    roomy.slots = server.slots
    for step, choice in steps:
        now += 1
        client = list(others)[choice % len(others)] if others else None
        if step == "accept":
            others[roomy.accept(now, sent_at=now)] = None
        elif step == "protected":
            expected = min(others, key=lambda other: other.last_activity, default=None)
            broker = Client(sent_at=[now])
            assert server.connect(now, client=broker, protected=True) == Decision(True, displaced=expected)
            if expected is not None:
                del others[expected]
        elif client is not None and step == "use":
            client.sent_at.append(now)
        elif client is not None:
            server.slots.release(client)
            del others[client]


def test_flood_at_the_limit_looks_at_each_connection_once() -> None:
    server = Server(most=1_000)
    clients = [server.accept(0, sent_at=1) for _ in range(1_000)]
    for _ in range(1_000):
        assert server.connect(1_000) == REFUSED
    assert sum(client.looks for client in clients) <= 2 * len(clients)


def test_flood_on_the_protected_listener_sorts_the_others_once() -> None:
    server = Server(most=1_000)
    clients = [server.accept(0, sent_at=number) for number in range(1_000)]
    assert [server.connect(2_000, protected=True).displaced for _ in clients] == clients
    assert sum(client.looks for client in clients) <= 5 * len(clients)


def test_flood_on_the_protected_listener_looks_at_one_silent_connection_each() -> None:
    server = Server(most=0)
    flood = [Client() for _ in range(1_000)]
    for client in flood:
        assert server.connect(2_000, client=client, protected=True) == Decision(is_accepted=True)
    assert sum(client.looks for client in flood) <= len(flood)
