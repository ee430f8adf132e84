"""What keeps a client from going on: addresses that are not reached, brokers that do not respond. Pure.

A client tries again by itself, so an obstacle is no error: it is what a person who waits wants to know. One that has
not been met again for ``_FRESH_SECONDS`` is over, since pauses between attempts are shorter than that: the client found
another way, or no longer needs what it wanted.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from oncelog.clients.connection import Address
from oncelog.protocol.errors import ErrorCode

_FRESH_SECONDS: Final = 2.5
_KEPT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Something that a client waits for."""

    reason: str
    """What happens instead: "Connection refused", "no response to Metadata"."""
    seconds: float
    """How long it has lasted."""
    address: Address | None = None
    """Where; None for what has no address, such as a broker that is not in the cluster."""
    broker_id: int | None = None
    """The broker that advertises the address, if any is known to."""
    error: ErrorCode | None = None
    """The error that brokers return again and again, if that is the obstacle."""
    advice: str = ""
    """What to set instead where the broker refuses this client, or its certificate is not accepted."""
    is_connected: bool = False
    """Whether connections are accepted at the address, so that a process listens there."""
    is_usual: bool = False
    """Whether it may last for a while in a healthy cluster: a group waits for all of its members."""

    def __str__(self) -> str:
        return self.reason if self.address is None else f"{self.address}: {self.reason}"


@dataclass(slots=True, kw_only=True)
class _Attempts:
    """Attempts at one thing, all of which failed so far."""

    reason: str
    began_at: float
    last_at: float
    is_under_way: bool
    is_connected: bool
    """Whether the connection of the attempt that ``reason`` is of was accepted."""
    is_accepted: bool = False
    """Whether that of the attempt under way is."""
    error: ErrorCode | None = None
    """The error that a broker returned, if that is the reason."""
    advice: str = ""


class Obstacles:
    """The attempts of one client that have not succeeded. ``now`` is in seconds, of any clock."""

    def __init__(self) -> None:
        self._attempts: dict[Hashable, _Attempts] = {}

    def begin(self, subject: Hashable, reason: str, now: float, *, is_connected: bool = False) -> None:
        """Report that an attempt is under way; ``reason`` is why it has not succeeded yet.

        How the attempt before it failed says more: that stays the reason until this one fails, or is connected.
        """
        before, was_connected, advice = self._attempts.get(subject), is_connected, ""
        if before is not None and not is_connected and not before.is_under_way and _is_current(before, now):
            reason, was_connected, advice = before.reason, before.is_connected, before.advice
        self._note(subject, reason, now, is_under_way=True, is_connected=was_connected)
        self._attempts[subject].advice = advice
        self._attempts[subject].is_accepted = is_connected

    def fail(
        self, subject: Hashable, reason: str, now: float, error: ErrorCode | None = None, *, advice: str = ""
    ) -> None:
        """Report that an attempt has failed. ``error``: what a broker returned; ``advice``: what to set instead."""
        known = self._attempts.get(subject)
        self._note(subject, reason, now, is_under_way=False, is_connected=known is not None and known.is_accepted)
        self._attempts[subject].error = error
        self._attempts[subject].advice = advice

    def overcome(self, subject: Hashable) -> None:
        """Report that an attempt has succeeded: the obstacle is gone."""
        self._attempts.pop(subject, None)

    def _note(self, subject: Hashable, reason: str, now: float, *, is_under_way: bool, is_connected: bool) -> None:
        self._attempts = {key: each for key, each in self._attempts.items() if now - each.last_at < _KEPT_SECONDS}
        known = self._attempts.get(subject)
        began_at = known.began_at if known is not None and _is_current(known, now) else now
        self._attempts[subject] = _Attempts(
            reason=reason, began_at=began_at, last_at=now, is_under_way=is_under_way, is_connected=is_connected
        )

    def current(self, now: float) -> list[Obstacle]:
        """Return the present obstacles, the oldest first."""
        lasting = [(key, each) for key, each in self._attempts.items() if _is_current(each, now)]
        return [
            Obstacle(
                reason=each.reason,
                seconds=now - each.began_at,
                address=key if isinstance(key, Address) else None,
                error=each.error,
                advice=each.advice,
                is_connected=each.is_connected,
            )
            for key, each in sorted(lasting, key=lambda item: item[1].began_at)
        ]


def _is_current(attempts: _Attempts, now: float) -> bool:
    return attempts.is_under_way or now - attempts.last_at <= _FRESH_SECONDS


def no_response(seconds: float, obstacles: Iterable[Obstacle], time_outs: Iterable[str] = ()) -> str:
    """Return the message of a call that timed out: its obstacles, or what took its time.

    ``time_outs`` is what ended connections.
    """
    reasons = [str(each) for each in obstacles] or list(time_outs)
    return f"no response within {seconds:g} s: {'; '.join(reasons) or 'the brokers are slow'}"


def at_broker(obstacle: Obstacle, brokers: dict[int, Address]) -> Obstacle:
    """Return the obstacle with the broker that advertises its address."""
    ids = [broker_id for broker_id, address in brokers.items() if address == obstacle.address]
    return replace(obstacle, broker_id=ids[0]) if ids and obstacle.address is not None else obstacle
