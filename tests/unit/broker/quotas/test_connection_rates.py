"""How fast connections may come, from an address, by a listener and to the broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.quotas.connection_rates import UNLIMITED, ConnectionRates
from oncelog.broker.quotas.windowed_rate import Windows
from oncelog.protocol.client_quotas import DEFAULT


def rates(broker: float = UNLIMITED, *, backlog: int = 1_000, **listeners: float) -> ConnectionRates:
    made = ConnectionRates(Windows())
    made.set_limits(broker, listeners, backlog=backlog)
    return made


def test_connections_without_limits_are_served_at_once() -> None:
    made = rates()
    for _ in range(10_000):
        assert made.admit("1.2.3.4", "A", 0.0, is_between_brokers=False) == (False, 0.0)
    assert made.throttles.count == 0


def test_connection_over_the_rate_of_its_address_is_held_and_closed_and_does_not_count() -> None:
    made = rates()
    made.set_ip_limit("1.2.3.4", 2)
    admitted = [made.admit("1.2.3.4", "A", 0.0, is_between_brokers=False) for _ in range(40)]
    assert admitted == [(False, 0.0)] * 20 + [(True, 0.5)] * 20
    assert made.admit("1.2.3.5", "A", 0.0, is_between_brokers=False) == (False, 0.0)
    assert made.admit("1.2.3.4", "A", 11.0, is_between_brokers=False) == (False, 0.0)
    assert made.throttles.count == 20


def test_address_without_a_limit_of_its_own_has_the_default_one_for_itself() -> None:
    made = rates()
    made.set_ip_limit(DEFAULT, 1)
    made.set_ip_limit("1.1.1.1", 5)
    for host, most in (("1.1.1.1", 50), ("2.2.2.2", 10), ("3.3.3.3", 10)):
        admitted = [made.admit(host, "A", 0.0, is_between_brokers=False).is_closed for _ in range(60)]
        assert admitted.count(False) == most
    made.set_ip_limit(DEFAULT, None)
    assert not made.admit("2.2.2.2", "A", 0.0, is_between_brokers=False).is_closed


def test_listener_between_brokers_does_not_count_for_the_broker() -> None:
    made = rates(1, A=UNLIMITED)
    for _ in range(100):
        assert made.admit("h", "BROKERS", 0.0, is_between_brokers=True) == (False, 0.0)
    assert [made.admit("h", "A", 0.0, is_between_brokers=False).delay for _ in range(10)] == [0.0] * 10
    assert made.admit("h", "A", 0.0, is_between_brokers=False).delay > 0


def test_listener_over_its_rate_does_not_slow_another() -> None:
    made = rates(A=1)
    for _ in range(20):
        made.admit("h", "A", 0.0, is_between_brokers=False)
    assert made.admit("h", "B", 0.0, is_between_brokers=False) == (False, 0.0)


def test_connections_beyond_the_backlog_are_closed_at_once() -> None:
    made = rates(1, backlog=5)
    admitted = [made.admit("h", "A", 0.0, is_between_brokers=False) for _ in range(30)]
    assert [each.is_closed for each in admitted] == [False] * 15 + [True] * 15
    assert admitted[-1].delay == 0.0
    assert not made.admit("h", "A", admitted[14].delay, is_between_brokers=False).is_closed


@given(st.integers(1, 20), st.lists(st.integers(0, 300), max_size=300))
def test_connections_are_served_at_the_rate_after_the_first_windows(limit: int, pauses_ms: list[int]) -> None:
    made, now, served = rates(limit), 0.0, []
    for pause_ms in pauses_ms:
        now += pause_ms / 1000
        served.append(now + made.admit("h", "A", now, is_between_brokers=False).delay)
    assert served == sorted(served)
    for number, at in enumerate(served, 1):
        assert number <= limit * (at - served[0] + 11) + 1


def test_connections_that_come_at_once_are_served_within_the_windows() -> None:
    made = rates(10)
    delays = [made.admit("h", "A", 0.0, is_between_brokers=False).delay for _ in range(120)]
    assert delays[:100] == [0.0] * 100
    assert delays[100] == pytest.approx(0.1)
    assert delays == sorted(delays)
    assert delays[119] == pytest.approx(11.0), "when the first hundred do not count any more"
