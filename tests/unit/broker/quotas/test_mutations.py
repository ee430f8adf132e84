"""The partitions that requests may create and delete."""

from oncelog.broker.quotas.client_quota import BucketQuota
from oncelog.broker.quotas.limits import Limit
from oncelog.broker.quotas.mutations import Mutations
from oncelog.broker.quotas.windowed_rate import Windows
from oncelog.protocol.errors import ErrorCode


class Clock:
    """Seconds, as they are set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


LIMIT = Limit(("alice", None), 2.0)
"""A full bucket has 22 tokens."""


def test_strict_request_is_refused_while_there_is_a_debt_and_not_before() -> None:
    clock, quota = Clock(), BucketQuota(Windows())
    first = Mutations(quota, LIMIT, clock, is_strict=True)
    assert [first.admit(20), first.admit(10)] == [None, None]
    assert first.delay() == 0.0
    refused = first.admit(1)
    assert refused is not None
    assert refused.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert first.delay() == 4.0
    clock.seconds = 4.0
    assert first.delay() == 0.0
    assert Mutations(quota, LIMIT, clock, is_strict=True).admit(5) is None


def test_permissive_request_is_never_refused_and_throttled_for_its_debt() -> None:
    clock, quota = Clock(), BucketQuota(Windows())
    request = Mutations(quota, LIMIT, clock, is_strict=False)
    assert [request.admit(20), request.admit(10), request.admit(10)] == [None] * 3
    assert request.delay() == 9.0


def test_request_without_a_limit_does_what_it_likes() -> None:
    quota = BucketQuota(Windows())
    request = Mutations(quota, None, Clock(), is_strict=True)
    assert request.admit(1_000_000) is None
    assert request.delay() == 0.0
    assert len(quota.buckets) == 0


def test_partitions_that_are_given_back_count_no_more() -> None:
    clock, quota = Clock(), BucketQuota(Windows())
    request = Mutations(quota, LIMIT, clock, is_strict=True)
    assert request.admit(30) is None
    request.give_back(20)
    assert request.admit(12) is None
    assert request.admit(1) is None
    assert request.admit(1) is not None
