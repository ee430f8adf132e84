"""``LoginLog``: who has logged in, and which logins have failed, in few lines of the audit log.

A client may connect a thousand times a second, and fail as often. So logins are counted by what they are and by
principal, mechanism, host and listener: the first is a line, and what follows in the same ten seconds is one line with
their number. Beyond a bound they are only counted.

A login is by a mechanism of SASL or, on a listener without SASL, by a handshake of TLS (``TLS``). On a listener with
both, a handshake that fails is one, too. No line has anything that a client has sent in order to show who it is: the
user of a failed login is named only if there is such a user, since others may be passwords.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from oncelog.broker.dispatch.request import ConnectionInfo, Principal

TLS: Final = "TLS"
SUCCEEDED: Final = "login"
FAILED: Final = "login_failed"
_MOST_COUNTED: Final = 1_000
"""Kinds of one window, of each event: failures, which need no account, leave the lines of logins to be written."""


class _Kind(NamedTuple):
    """By what logins are counted."""

    event: str
    principal: str | None
    mechanism: str | None
    host: str
    listener: str
    is_delegated: bool

    def fields(self) -> dict[str, Any]:
        fields = {key: getattr(self, key) for key in ("principal", "mechanism", "host", "listener")}
        return {**fields, "token": True} if self.is_delegated else fields


class LoginLog:
    """Counts logins, and writes the lines. ``end_window`` is called at an interval."""

    def __init__(self, write: Callable[..., None] | None = None) -> None:
        """Write by ``write``, which takes the event and its fields; None: count nothing."""
        self._write = write
        self._more: dict[_Kind, int] = {}
        """The logins of this window that have no line."""
        self._kinds = {SUCCEEDED: 0, FAILED: 0}
        self._uncounted = {SUCCEEDED: 0, FAILED: 0}

    def succeeded(self, connection: ConnectionInfo, mechanism: str, *, is_delegated: bool = False) -> None:
        """Note a login; ``is_delegated``: by a delegation token of the principal."""
        principal = str(connection.principal)
        self._note(_Kind(SUCCEEDED, principal, mechanism, *_place(connection), is_delegated), {})

    def failed(self, connection: ConnectionInfo, mechanism: str | None, reason: str, user: str = "") -> None:
        """Note a login that failed: by a mechanism, if one was chosen, and as a user that exists, if it is known."""
        principal = str(Principal("User", user)) if user else None
        self._note(_Kind(FAILED, principal, mechanism or None, *_place(connection), False), {"reason": reason})

    async def end_window(self) -> None:
        """Write how many logins had no line, and begin to count anew."""
        self.write_counts()

    def write_counts(self) -> None:
        """Do so, also when the broker stops."""
        ended, self._more = self._more, {}
        self._kinds = dict.fromkeys(self._kinds, 0)
        uncounted, self._uncounted = self._uncounted, dict.fromkeys(self._uncounted, 0)
        if self._write is None:
            return
        for kind, more in ended.items():
            if more:
                self._write(kind.event, **kind.fields(), count=more)
        for event, count in uncounted.items():
            if count:
                self._write(event, count=count)

    def _note(self, kind: _Kind, reason: dict[str, str]) -> None:
        if self._write is None:
            return
        more = self._more.get(kind)
        if more is not None:
            self._more[kind] = more + 1
        elif self._kinds[kind.event] < _MOST_COUNTED:
            self._kinds[kind.event] += 1
            self._more[kind] = 0
            self._write(kind.event, **kind.fields(), **reason, count=1)
        else:
            self._uncounted[kind.event] += 1


def _place(connection: ConnectionInfo) -> tuple[str, str]:
    return connection.client_host, connection.listener_name
