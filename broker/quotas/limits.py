"""``Limits``: the limits of one key, such as ``producer_byte_rate``, and which of them holds for a client. Pure.

The most specific limit holds, whatever its value, and says who shares it:

==============================  =============================
the limit is of                 it is shared by
==============================  =============================
user, client id                 this user's clients of this id
user, default client id         this user's clients of one id
user                            this user's clients
default user, client id         one user's clients of this id
default user, default client    one user's clients of one id
default user                    one user's clients
client id                       all clients of this id
default client id               all clients of one id
==============================  =============================

Source: Kafka's ``ClientQuotaManager``.
"""

from typing import NamedTuple, TypeAlias

from oncelog.protocol.client_quotas import DEFAULT, EntityName

Owner: TypeAlias = tuple[str | None, str | None]
"""Who shares a limit: a user, a client id, or both."""
_Part: TypeAlias = EntityName | None


class Limit(NamedTuple):
    """The limit of a client."""

    owner: Owner
    value: float


class Limits:
    """The limits by entity: (user, client id)."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[_Part, _Part], float] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def set(self, user: _Part, client_id: _Part, value: float | None) -> None:
        """Give an entity a limit, or none any more."""
        if value is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = value

    def find(self, user: str, client_id: str) -> Limit | None:
        """Return the limit that holds for a client, or None."""
        get = self._limits.get
        for whose in (user, DEFAULT):
            value = get((whose, client_id))
            if value is None:
                value = get((whose, DEFAULT))
            if value is not None:
                return Limit((user, client_id), value)
            value = get((whose, None))
            if value is not None:
                return Limit((user, None), value)
        value = get((None, client_id))
        if value is None:
            value = get((None, DEFAULT))
        return None if value is None else Limit((None, client_id), value)
