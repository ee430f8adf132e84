"""``ConnectionRates``: how fast connections may come from one address, by one listener and to the broker. Pure.

A connection over the rate of its address is held for as long as it is too early, a window at most, and then closed: it
does not count (KIP-612). One over the rate of its listener or of the broker is served later. Kafka's acceptor waits for
that before it accepts the next one; here connections are accepted at once, so each listener has the time at which such
an acceptor would be ready again. As many wait as ``socket.listen.backlog.size``, as in the kernel; others are refused.

The listener between brokers, if clients have others, does not count for the broker's rate. Source: Kafka's
``ConnectionQuotas``.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.broker.quotas.client_quota import Throttles
from oncelog.broker.quotas.sensors import Sensors
from oncelog.broker.quotas.windowed_rate import WindowedRate, Windows
from oncelog.protocol.client_quotas import DEFAULT, EntityName

UNLIMITED: Final = 2**31 - 1


class Admission(NamedTuple):
    """What becomes of a new connection."""

    is_closed: bool = False
    """Whether it is closed after the delay, and not served."""
    delay: float = 0.0
    """Seconds."""


_AT_ONCE: Final = Admission()


@dataclass(slots=True)
class _Acceptor:
    """The rate of one listener, and the connections that it has not served yet."""

    limit: float = UNLIMITED
    rate: WindowedRate = field(default_factory=WindowedRate)
    ready_at: float = 0.0
    waiting: deque[float] = field(default_factory=deque)
    """The times at which connections are served."""


class ConnectionRates:
    """The rates of one broker. Times are seconds of the loop's clock."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._broker_limit: float = UNLIMITED
        self._broker_rate = WindowedRate()
        self._acceptors: dict[str, _Acceptor] = {}
        self._backlog = 0
        self._ip_limits: dict[EntityName, float] = {}
        self._ips: Sensors[str, WindowedRate] = Sensors(WindowedRate, lambda rate, now: rate.is_unused(now, windows))
        self.throttles = Throttles()

    def set_limits(self, broker: float, listeners: Mapping[str, float], *, backlog: int) -> None:
        """Set the limit of the broker, those of listeners that have one, and how many connections may wait."""
        self._broker_limit, self._backlog = broker, backlog
        for name in self._acceptors.keys() | listeners:
            self._acceptors.setdefault(name, _Acceptor()).limit = listeners.get(name, UNLIMITED)

    def set_ip_limit(self, ip: EntityName, limit: float | None) -> None:
        """Set the limit of an address, or of all without one of their own; None: it has none any more."""
        if limit is None:
            self._ip_limits.pop(ip, None)
        else:
            self._ip_limits[ip] = limit

    def admit(self, host: str, listener: str, now: float, *, is_between_brokers: bool) -> Admission:
        """Count a new connection, and return what becomes of it."""
        held = self._hold(host, now) if self._ip_limits else 0.0
        if held:
            self.throttles.note(held)
            return Admission(is_closed=True, delay=held)
        acceptor = self._acceptors.get(listener)
        if self._broker_limit == UNLIMITED and (acceptor is None or acceptor.limit == UNLIMITED):
            return _AT_ONCE
        if acceptor is None:
            acceptor = self._acceptors[listener] = _Acceptor()
        admission = self._accept(acceptor, now, counts=not is_between_brokers)
        if admission.delay:
            self.throttles.note(admission.delay)
        return admission

    def _hold(self, host: str, now: float) -> float:
        """Return for how many seconds a connection of an address is too early."""
        limit = self._ip_limits.get(host) or self._ip_limits.get(DEFAULT)
        if limit is None:
            return 0.0
        rate = self._ips.of(host, now)
        rate.record(1, now, self._windows)
        held = self._delay(rate, limit, now)
        if held:
            rate.record(-1, now, self._windows)
        return held

    def _accept(self, acceptor: _Acceptor, now: float, *, counts: bool) -> Admission:
        waiting = acceptor.waiting
        while waiting and waiting[0] <= now:
            waiting.popleft()
        if len(waiting) >= self._backlog:
            return Admission(is_closed=True)
        at = max(now, acceptor.ready_at)
        delay = 0.0
        for rate, limit in ((acceptor.rate, acceptor.limit), (self._broker_rate, self._broker_limit)):
            if limit != UNLIMITED and (counts or rate is acceptor.rate):
                rate.record(1, at, self._windows)
                delay = max(delay, self._delay(rate, limit, at))
        acceptor.ready_at = at + delay
        if acceptor.ready_at <= now:
            return _AT_ONCE
        waiting.append(acceptor.ready_at)
        return Admission(delay=acceptor.ready_at - now)

    def _delay(self, rate: WindowedRate, limit: float, now: float) -> float:
        return min(rate.delay(limit, now, self._windows), self._windows.seconds)
