"""The memory of what clients have used is bounded, whatever client ids they invent."""

from oncelog.broker.quotas.client_quota import ClientQuota
from oncelog.broker.quotas.sensors import MOST, Sensors
from oncelog.broker.quotas.windowed_rate import WindowedRate, Windows
from oncelog.protocol.client_quotas import DEFAULT


def quota(limit: float = 100) -> ClientQuota:
    made = ClientQuota(Windows())
    made.limits.set(None, DEFAULT, limit)
    return made


def test_sensors_of_client_ids_that_are_not_used_any_more_are_dropped() -> None:
    made = quota()
    for second in range(1_000):
        made.record("u", f"invented-{second}", 1, float(second))
        assert len(made.sensors) <= 13
    made.record("u", "another", 1, 5_000.0)
    assert len(made.sensors) < 13


def test_sensors_are_no_more_than_most_however_many_client_ids_come_at_once() -> None:
    made = quota()
    for number in range(MOST + 1_000):
        made.record("u", f"invented-{number}", 1, 1.0)
    assert len(made.sensors) == MOST


def test_sensor_of_a_client_that_goes_on_survives_a_flood_of_client_ids() -> None:
    windows = Windows()
    sensors: Sensors[str, WindowedRate] = Sensors(
        WindowedRate, lambda rate, now: rate.is_unused(now, windows), most=100
    )
    steady = sensors.of("steady", 0.0)
    steady.record(1, 0.0, windows)
    for number in range(10_000):
        sensors.of(f"invented-{number}", 0.0).record(1, 0.0, windows)
        if number % 50 == 0:
            assert sensors.of("steady", 0.0) is steady


def test_client_without_a_limit_has_no_sensor() -> None:
    made = ClientQuota(Windows())
    made.limits.set("alice", None, 10)
    assert made.record("bob", "c", 1_000_000, 0.0) == 0.0
    assert len(made.sensors) == 0


def test_clients_of_a_user_share_its_limit_and_pairs_count_apart() -> None:
    made = ClientQuota(Windows())
    made.limits.set("alice", None, 10)
    made.limits.set(DEFAULT, DEFAULT, 10)
    assert made.record("alice", "a", 100, 0.0) == 0.0
    assert made.record("alice", "b", 10, 0.0) == 1.0
    assert made.record("bob", "a", 100, 0.0) == 0.0
    assert made.record("bob", "b", 100, 0.0) == 0.0


def test_use_over_the_limit_is_not_counted_unless_the_limit_never_allows_it() -> None:
    made = quota(100)
    assert made.use("u", "c", 1_000, 0.0) == (True, 0.0)
    refused = made.use("u", "c", 500, 0.0)
    assert refused == (False, 5.0)
    assert made.use("u", "c", 500, 0.0) == refused
    assert made.use("u", "other", 2_000, 0.0) == (True, 20.0)
    assert made.use("u", "other", 2_000, 5.0).is_allowed is False
