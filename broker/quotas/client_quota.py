"""``ClientQuota``: the quota of one key, with its limits and what each owner of a limit has used. Pure.

A client for which no limit holds is not counted. A use that goes over the limit is counted, too: the delay is what
makes it good.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.broker.quotas.limits import Limit, Limits, Owner
from oncelog.broker.quotas.sensors import Sensors
from oncelog.broker.quotas.token_bucket import TokenBucket
from oncelog.broker.quotas.windowed_rate import WindowedRate, Windows


class Use(NamedTuple):
    """What becomes of a use that can be refused."""

    is_allowed: bool
    """Whether it was counted. Else it must not be made."""
    delay: float = 0.0
    """Seconds for which the client is to wait."""


_ALLOWED: Final = Use(is_allowed=True)
_LEAST_PART: Final = 0.25
_NEGLIGIBLE: Final = 0.000_5
"""Seconds: less than the millisecond that a response can name."""


@dataclass(slots=True)
class Throttles:
    """How often clients were throttled for one quota, and for how long."""

    count: int = 0
    seconds: float = 0.0

    def note(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.seconds += seconds


@dataclass(slots=True)
class ClientQuota:
    """A quota on a rate: bytes per second, or percent of the loop's time. Times are seconds of the loop's clock."""

    windows: Windows
    longest_seconds: float = float("inf")
    """The longest delay."""
    limits: Limits = field(default_factory=Limits)
    throttles: Throttles = field(default_factory=Throttles)
    sensors: Sensors[Owner, WindowedRate] = field(init=False)

    def __post_init__(self) -> None:
        self.sensors = Sensors(WindowedRate, lambda rate, now: rate.is_unused(now, self.windows))

    def record(self, user: str, client_id: str, used: float, now: float) -> float:
        """Count a use, and return for how many seconds the client is to wait."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0.0
        rate = self.sensors.of(limit.owner, now)
        rate.record(used, now, self.windows)
        return min(rate.delay(limit.value, now, self.windows), self.longest_seconds)

    def use(self, user: str, client_id: str, used: float, now: float) -> Use:
        """Count a use if it is within the limit.

        One that is larger than the limit allows at all would never be allowed: it is when nothing else counts, and the
        client waits for as long as the limit needs for it.
        """
        limit = self.limits.find(user, client_id)
        if limit is None:
            return _ALLOWED
        rate = self.sensors.of(limit.owner, now)
        is_first = rate.is_unused(now, self.windows)
        rate.record(used, now, self.windows)
        delay = rate.delay(limit.value, now, self.windows)
        if delay < _NEGLIGIBLE:
            return _ALLOWED
        if is_first:
            return Use(is_allowed=True, delay=used / limit.value)
        rate.record(-used, now, self.windows)
        return Use(is_allowed=False, delay=min(delay, self.longest_seconds))

    def most_at_once(self, user: str, client_id: str, now: float) -> float:
        """Return how much a client should use at once: what it has left, or what its limit allows in part of a window.

        Less would be many small uses. Kafka lets it be what all windows allow together: then it comes in one piece, and
        the next one waits until that does not count any more, which can be half the rate.
        """
        limit = self.limits.find(user, client_id)
        if limit is None:
            return float("inf")
        room = self.sensors.of(limit.owner, now).room(limit.value, now, self.windows)
        return max(room, limit.value * self.windows.seconds * _LEAST_PART)


@dataclass(slots=True)
class BucketQuota:
    """A quota on work in bursts, with a bucket of tokens for each owner of a limit."""

    windows: Windows
    limits: Limits = field(default_factory=Limits)
    throttles: Throttles = field(default_factory=Throttles)
    buckets: Sensors[Owner, TokenBucket] = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = Sensors(TokenBucket, lambda bucket, now: bucket.is_full(now, self.windows))

    def use(self, limit: Limit, tokens: float, now: float) -> float:
        """Take tokens out, and return the seconds until the debt is paid."""
        bucket = self.buckets.of(limit.owner, now)
        bucket.use(tokens, limit.value, now, self.windows)
        return bucket.delay(limit.value, now, self.windows)

    def delay(self, limit: Limit, now: float) -> float:
        """Return the seconds until the debt is paid; 0 if there is none."""
        return self.buckets.of(limit.owner, now).delay(limit.value, now, self.windows)
