"""Which connections are treated as those of followers: their fetches wait neither for room nor for one another.

Until connections are authenticated, any client may say that it is a follower. So each follower has few such places; a
further connection is served as a consumer's is. A follower needs one, and for a while a second one when it connects
again.

A follower names the epoch of its registration in each fetch (Fetch 15 and later), and the controller sends the leader
the registered epoch. A connection with another epoch gets no place. One that names none, as a follower of an older
version does, gets what is left, and gives it up for one with the right epoch: connections that only claim to be a
follower do not keep its own away.
"""

from typing import Final, Protocol

from oncelog.broker.replication.follower_state import UNKNOWN_EPOCH

_MOST: Final = 4


class Connected(Protocol):
    """A connection, which may be lost."""

    is_replica_fetcher: bool
    """Whether it has a place."""

    @property
    def is_open(self) -> bool: ...


class FollowerConnections:
    """The places of each follower, by its broker id.

    A connection that has one keeps it until it is lost, or proves to be of an earlier registration, or has to make
    room.
    """

    def __init__(self) -> None:
        self._places: dict[int, dict[Connected, int]] = {}
        """Of each connection, the epoch that it named last."""

    def admit(self, replica_id: int, connection: Connected, *, named_epoch: int, registered_epoch: int) -> None:
        """Give a connection that fetches a place of the follower, or none. Call it for known brokers only."""
        places = self._places.setdefault(replica_id, {})
        if places.get(connection) == named_epoch == registered_epoch:
            return  # As in nearly every fetch.
        if places.get(connection) != named_epoch or not may_have_place(named_epoch, registered_epoch):
            _vacate(places, connection)
            if may_have_place(named_epoch, registered_epoch) and _has_room(places, named_epoch, registered_epoch):
                places[connection] = named_epoch
                connection.is_replica_fetcher = True


def _has_room(places: dict[Connected, int], named_epoch: int, registered_epoch: int) -> bool:
    """Return whether there is a place for one more connection, once those have left that must."""
    for other, epoch in list(places.items()):
        if not other.is_open or not may_have_place(epoch, registered_epoch):
            _vacate(places, other)
    unnamed = next((other for other, epoch in places.items() if epoch == UNKNOWN_EPOCH), None)
    if len(places) >= _MOST and unnamed is not None and named_epoch != UNKNOWN_EPOCH:
        _vacate(places, unnamed)
    return len(places) < _MOST


def _vacate(places: dict[Connected, int], connection: Connected) -> None:
    places.pop(connection, None)
    connection.is_replica_fetcher = False


def may_have_place(named_epoch: int, registered_epoch: int) -> bool:
    """Return whether a fetch that names an epoch may come from the follower of that registration. Pure."""
    return UNKNOWN_EPOCH in (named_epoch, registered_epoch) or named_epoch == registered_epoch
