"""Which connections are treated as those of followers: their fetches wait neither for room nor for one another.

Until connections are authenticated, anybody may say that he is a follower. So each broker has few such connections;
a further one is served as a consumer's is. A follower needs one, and for a while a second one when it connects again.
"""

from typing import Final, Protocol

_MOST: Final = 4


class Connected(Protocol):
    """A connection, which may be lost."""

    @property
    def is_open(self) -> bool: ...


class FollowerConnections:
    """The connections of each follower, by its broker id. The first ones stay until they are lost."""

    def __init__(self) -> None:
        self._admitted: dict[int, list[Connected]] = {}

    def admit(self, replica_id: int, connection: Connected) -> bool:
        """Return whether the connection is one of those that this follower may have. Call it for known brokers only."""
        admitted = self._admitted.setdefault(replica_id, [])
        if connection in admitted:
            return True
        admitted[:] = [other for other in admitted if other.is_open]
        if len(admitted) >= _MOST:
            return False
        admitted.append(connection)
        return True
