"""What a client waits for: how long it has lasted, and when it is over."""

from oncelog.clients.connection import Address
from oncelog.clients.obstacles import Obstacle, Obstacles, at_broker

HERE = Address("localhost", 9092)


def seconds(obstacles: Obstacles, now: float) -> list[tuple[str, float]]:
    return [(each.reason, each.seconds) for each in obstacles.current(now)]


def test_attempts_that_fail_one_after_the_other_are_one_obstacle() -> None:
    obstacles = Obstacles()
    for now in range(10):
        obstacles.begin(HERE, "no response to the attempt", now)
        obstacles.fail(HERE, "Connection refused", now + 0.5)
    assert seconds(obstacles, 10.0) == [("Connection refused", 10.0)]
    obstacles.overcome(HERE)
    assert seconds(obstacles, 10.0) == []


def test_obstacle_not_met_again_is_over() -> None:
    obstacles = Obstacles()
    obstacles.fail(HERE, "Connection refused", 0.0)
    assert seconds(obstacles, 2.0) == [("Connection refused", 2.0)]
    assert seconds(obstacles, 3.0) == []
    obstacles.fail(HERE, "Connection refused", 4.0)
    assert seconds(obstacles, 5.0) == [("Connection refused", 1.0)]


def test_attempt_under_way_stays_an_obstacle() -> None:
    obstacles = Obstacles()
    obstacles.begin(HERE, "no response to the attempt", 0.0)
    obstacles.begin(HERE, "no response to ApiVersions", 1.0, is_connected=True)
    (obstacle,) = obstacles.current(30.0)
    assert obstacle == Obstacle(
        reason="no response to ApiVersions", seconds=30.0, address=HERE, is_connected=True, broker_id=None
    )
    obstacles.fail(HERE, "closed", 30.0)
    assert obstacles.current(30.0)[0].is_connected


def test_attempt_after_a_failure_keeps_its_reason_until_it_gets_further() -> None:
    obstacles = Obstacles()
    obstacles.begin(HERE, "no response to the attempt", 0.0)
    obstacles.fail(HERE, "Connection refused", 0.5)
    obstacles.begin(HERE, "no response to the attempt", 1.0)
    assert seconds(obstacles, 5.0) == [("Connection refused", 5.0)]
    obstacles.begin(HERE, "no response to ApiVersions", 6.0, is_connected=True)
    assert seconds(obstacles, 7.0) == [("no response to ApiVersions", 7.0)]


def test_address_that_refuses_after_it_accepted_is_not_called_connected() -> None:
    """The broker was killed while a connection waited for its response."""
    obstacles = Obstacles()
    obstacles.begin(HERE, "no response to ApiVersions", 0.0, is_connected=True)
    obstacles.fail(HERE, "closed", 0.5)
    obstacles.begin(HERE, "no response to the attempt", 1.0)
    assert obstacles.current(1.0)[0].is_connected
    obstacles.fail(HERE, "Connection refused", 1.5)
    assert not obstacles.current(1.5)[0].is_connected


def test_attempt_long_after_a_failure_has_a_reason_of_its_own() -> None:
    obstacles = Obstacles()
    obstacles.fail(HERE, "Connection refused", 0.0)
    obstacles.begin(HERE, "no response to the attempt", 10.0)
    assert seconds(obstacles, 11.0) == [("no response to the attempt", 1.0)]


def test_obstacle_long_over_is_removed() -> None:
    obstacles = Obstacles()
    for port in range(1000):
        obstacles.fail(Address("localhost", port), "Connection refused", port * 60.0)
    assert len(obstacles._attempts) == 1


def test_obstacle_address_is_named_with_its_broker() -> None:
    obstacle = Obstacle(reason="Connection refused", seconds=1.0, address=HERE)
    assert at_broker(obstacle, {7: HERE}).broker_id == 7
    assert at_broker(obstacle, {7: Address("elsewhere", 9092)}).broker_id is None
    assert at_broker(Obstacle(reason="absent", seconds=1.0), {7: HERE}).broker_id is None
