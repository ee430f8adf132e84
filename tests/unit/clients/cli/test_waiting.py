"""What is said about the obstacles of a command, and when."""

from oncelog.clients.cli.line_numbers import LineNumbers
from oncelog.clients.cli.waiting import (
    DOCTOR_ADVICE,
    STUCK_ADVICE,
    Notice,
    Notices,
    advice_without_broker,
)
from oncelog.clients.connection import Address
from oncelog.clients.errors import BrokerSilent, Unreachable
from oncelog.clients.obstacles import Obstacle
from oncelog.protocol.errors import ErrorCode

HERE, THERE = Address("localhost", 9092), Address("broker2", 9092)


def refused(seconds: float, address: Address = HERE, broker_id: int | None = None) -> Obstacle:
    return Obstacle(reason="Connection refused", seconds=seconds, address=address, broker_id=broker_id)


def test_obstacle_is_reported_once_and_when_it_is_over() -> None:
    notices = Notices(bootstrap=[HERE])
    assert notices.look([refused(2.9)], lambda _: False) == []
    ((text, advice),) = notices.look([refused(3.0)], lambda _: False)
    assert text == "Warning: still waiting: localhost:9092 cannot be reached: Connection refused"
    assert advice is not None
    assert "oncelog serve" in advice
    assert notices.look([refused(60.0)], lambda _: False) == []
    assert notices.look([], lambda _: True) == [Notice("Note: reached again: localhost:9092", None)]
    assert notices.look([], lambda _: True) == []
    assert len(notices.look([refused(3.0)], lambda _: False)) == 1


def test_simultaneous_obstacles_are_reported_together() -> None:
    notices = Notices(bootstrap=[HERE])
    ((text, advice),) = notices.look([refused(3.0), refused(1.5, THERE, 2), refused(0.1)], lambda _: False)
    assert "localhost:9092 cannot be reached: Connection refused" in text
    assert "broker 2 at broker2:9092 cannot be reached: Connection refused" in text
    assert "oncelog serve" in (advice or "")
    assert notices.look([refused(5.0)], lambda _: False) == []
    ((text, _),) = notices.look([], lambda _: False)
    assert text == "Note: no longer waiting for localhost:9092, broker 2 at broker2:9092"


def test_unreachable_advertised_address_is_named() -> None:
    ((text, advice),) = Notices(bootstrap=[HERE]).look([refused(3.0, THERE, 2)], lambda _: False)
    assert text.endswith(
        "broker 2 cannot be reached at the address that it advertises, broker2:9092: Connection refused"
    )
    assert advice == DOCTOR_ADVICE


def test_silent_broker_is_distinguished_from_missing_one() -> None:
    silent = Obstacle(reason="no response to Fetch", seconds=4.0, address=THERE, broker_id=2, is_connected=True)
    ((text, advice),) = Notices(bootstrap=[HERE]).look([silent], lambda _: True)
    assert text.endswith("broker 2 at broker2:9092 accepts connections and does not respond: no response to Fetch")
    assert advice == STUCK_ADVICE


def test_address_that_closes_connections_is_not_said_to_be_silent() -> None:
    reason = "closed the connection without a response: is this the port of a Kafka broker?"
    closed = Obstacle(reason=reason, seconds=4.0, address=HERE, is_connected=True)
    ((text, advice),) = Notices(bootstrap=[HERE]).look([closed], lambda _: False)
    assert text == f"Warning: still waiting: localhost:9092 {reason}"
    assert "oncelog serve" in (advice or "")


def test_deletion_that_takes_long_is_said_to_wait_for_brokers() -> None:
    waits = Obstacle(reason="no response to DeleteTopics", seconds=8.0, address=HERE, broker_id=1, is_connected=True)
    notices = Notices(bootstrap=[HERE])
    ((text, advice),) = notices.look([waits], lambda _: True)
    assert text.endswith("no response to DeleteTopics yet, which waits for all brokers with replicas of the topic")
    assert "the error names those that the deletion waits for" in (advice or "")
    ((text, _),) = notices.look([], lambda _: True)
    assert text == "Note: no longer waiting for the response to DeleteTopics"


def test_name_that_cannot_be_resolved_is_not_taken_for_a_missing_broker() -> None:
    unknown = Obstacle(reason=f"the name localhost {Unreachable.UNRESOLVED} (Unknown)", seconds=4.0, address=HERE)
    ((_, advice),) = Notices(bootstrap=[HERE]).look([unknown], lambda _: False)
    assert (advice or "").startswith("see that the name is right")
    assert "is a broker running there" in advice_without_broker([HERE, THERE], reasons=unknown.reason)


def test_silent_broker_is_reported_with_each_cause_once() -> None:
    reason = f"{BrokerSilent.EVENT} within 6 s{BrokerSilent.CAUSES}"
    silent = Obstacle(reason=reason, seconds=4.0, address=THERE, broker_id=2, is_connected=True)
    ((text, advice),) = Notices(bootstrap=[HERE]).look([silent], lambda _: True)
    assert text.endswith("broker 2 at broker2:9092 accepts connections, but does not respond within 6 s")
    assert advice == STUCK_ADVICE


def test_broker_that_may_wait_for_its_store_is_not_called_stuck_before_that_is_known() -> None:
    def waiting(seconds: float) -> Obstacle:
        return Obstacle(reason="no response to CreateTopics", seconds=seconds, address=THERE, is_connected=True)

    notices = Notices(bootstrap=[HERE])
    assert notices.look([waiting(7.9)], lambda _: True) == []
    assert "CreateTopics" not in notices.look([waiting(7.9), refused(3.0)], lambda _: True)[0].text
    assert "no response to CreateTopics" in notices.look([waiting(8.0), refused(8.0)], lambda _: True)[0].text


def test_long_rebalance_is_not_reported_at_once() -> None:
    joining = Obstacle(reason="no response to JoinGroup", seconds=11.0, address=HERE, is_connected=True, is_usual=True)
    notices = Notices(bootstrap=[HERE])
    assert notices.look([joining], lambda _: True) == []
    assert notices.look([joining, refused(3.0, THERE)], lambda _: True)[0].text.count(";") == 0


def test_transient_refusal_is_reported_with_its_remedy() -> None:
    refusal = Obstacle(reason="orders-0: NOT_ENOUGH_REPLICAS", seconds=3.0, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    ((text, advice),) = Notices(bootstrap=[HERE]).look([refusal], lambda _: True)
    assert text == "Warning: still waiting: orders-0: NOT_ENOUGH_REPLICAS"
    assert "min.insync.replicas" in (advice or "")


def test_single_bootstrap_address_suggests_several() -> None:
    for bootstrap, is_suggested in (([HERE], True), ([HERE, THERE], False)):
        ((_, advice),) = Notices(bootstrap=bootstrap).look([refused(3.0)], lambda _: False)
        assert ("name more than one" in (advice or "")) is is_suggested


def test_line_numbers_are_shown_as_ranges() -> None:
    numbers = LineNumbers()
    for number in (2, 7, 8, 9, 3, 20):
        numbers.add(number)
    assert (str(numbers), numbers.count) == ("2-3, 7-9, 20", 6)


def test_very_many_line_numbers_are_counted() -> None:
    numbers = LineNumbers()
    for number in range(0, 100_000, 2):
        numbers.add(number)
    assert str(numbers).endswith("38 and 49980 more")
    assert len(str(numbers)) < 100
