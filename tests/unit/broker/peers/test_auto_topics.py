"""Refusals of topics that are created when a request needs them: what of them is in the log."""

from oncelog.broker.peers.auto_topics import KnownRefusals
from oncelog.broker.peers.departures import RETURN_SECONDS, Departures


def test_refusal_that_is_repeated_is_logged_once_in_a_while() -> None:
    refusals = KnownRefusals()
    few, fewer = "INVALID_REPLICATION_FACTOR 2 brokers", "INVALID_REPLICATION_FACTOR 1 broker"
    times = ((few, 100.0), (few, 100.5), (few, 129.9), (few, 130.0), (few, 131.0), (fewer, 131.5), (fewer, 132.0))
    logged = [refusals.is_news("__transaction_state", said, now) for said, now in times]
    assert logged == [True, False, False, True, False, True, False]
    assert refusals.is_news("__consumer_offsets", few, 132.0)


def test_brokers_that_left_lately_are_those_that_are_not_back() -> None:
    departures = Departures()
    departures.note({1, 2, 3}, {1}, 100.0)
    assert departures.lately(100.0) == [2, 3]
    departures.note({1}, {1, 2}, 150.0)
    assert departures.lately(100.0 + RETURN_SECONDS - 1) == [3]
    assert departures.lately(100.0 + RETURN_SECONDS) == []
