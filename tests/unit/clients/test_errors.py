"""Errors travel between processes: each class can be pickled, whatever its constructor takes."""

import pickle
from collections.abc import Iterator

import pytest

import oncelog.clients.consumer.consumer_errors
from oncelog.clients.errors import BrokerRefused, ClientError, DeliveryTimedOut, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

MODULES = ("oncelog.clients.errors", "oncelog.clients.consumer.consumer_errors")
PLACE = TopicPartition("orders", 3)
MADE_OTHERWISE: dict[str, ClientError] = {
    "BrokerRefused": BrokerRefused("orders", Refusal(error=ErrorCode.INVALID_CONFIG, message="why")),
    "DeliveryTimedOut": DeliveryTimedOut("late", maybe_written=True),
    "NoOffsetForPartition": oncelog.clients.consumer.consumer_errors.NoOffsetForPartition([PLACE]),
    "OffsetOutOfRange": oncelog.clients.consumer.consumer_errors.OffsetOutOfRange(PLACE, 7),
    "LogTruncated": oncelog.clients.consumer.consumer_errors.LogTruncated(PLACE, 7, None),
    "UnreadableRecords": oncelog.clients.consumer.consumer_errors.UnreadableRecords(PLACE, 7, 9, "damaged"),
}
"""Those whose constructors do not take just a text."""


def kinds_of(kind: type[ClientError]) -> Iterator[type[ClientError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds_of(each)


@pytest.mark.parametrize(
    "kind", [each for each in kinds_of(ClientError) if each.__module__ in MODULES], ids=lambda k: k.__name__
)
def test_pickled_error_is_equal_when_loaded(kind: type[ClientError]) -> None:
    error = MADE_OTHERWISE[kind.__name__] if kind.__name__ in MADE_OTHERWISE else kind("what happened")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), vars(again), again.remedy) == (str(error), vars(error), error.remedy)
