"""``LastingRefusal``: brokers have refused a client's login for seconds, so that its user has to know. Pure.

A login that fails once may succeed a moment later: users are added, tokens renewed, brokers restarted with other
settings. One that goes on failing is a matter of settings, which no retry changes.
"""

from collections.abc import Callable
from typing import Final

from oncelog.clients.errors import AuthenticationFailed

_SECONDS: Final = 10.0


class LastingRefusal:
    """What the calls of one client raise then. ``now`` is in seconds, of any clock."""

    __slots__ = ("_since", "error", "on_error")

    def __init__(self) -> None:
        self._since: float | None = None
        self.error: AuthenticationFailed | None = None
        """The last refusal; None while a login has succeeded, or failed only recently."""
        self.on_error: Callable[[], object] = lambda: None
        """Called when there is one, for calls that wait."""

    def note(self, error: Exception, now: float) -> None:
        """Note that a connection could not be made; only refused logins count."""
        if not isinstance(error, AuthenticationFailed):
            return
        if self._since is None:
            self._since = now
        if now - self._since >= _SECONDS:
            self.error = error
            self.on_error()

    def overcome(self) -> None:
        """Note that a login has succeeded."""
        self._since = self.error = None

    def raise_if_any(self) -> None:
        """Raise ``AuthenticationFailed`` if there is one."""
        if self.error is not None:
            raise AuthenticationFailed(str(self.error), advice=self.error.advice)
