"""The challenge of version-1 requests: which connection acts for a producer, and how another one takes its place.

All transactions of a version-1 producer have the same epoch, so nothing in a request says for which of them it was
sent. A request that a broken connection, or a proxy, delivers late may end the next transaction, or commit old offsets
in it (KAFKA-17754). But a late request is never sent again: its client has given up the connection. So:

* For each (producer id, epoch) the *owner* is remembered: the connection over which a request last changed the
  transaction, or which the producer got its epoch over. Requests of the owner take effect at once.
* A request of any other connection changes nothing. It is *challenged*: refused with an error that clients retry after
  a pause, COORDINATOR_LOAD_IN_PROGRESS (for TxnOffsetCommit 0 to 2 UNKNOWN_TOPIC_OR_PARTITION, for a batch
  NOT_ENOUGH_REPLICAS).
* Unless that connection was *greeted* after the last request that took effect: its client had the response to
  ApiVersions then, so whatever it carries was sent later than all that has been done, and is in order. It becomes the
  owner at once.
* The repetition of a challenged request makes its connection the owner and takes effect: a request of the same kind,
  over the same connection, that began to arrive after the client's machine had the response to the challenged one, and
  the connection was quiet (``when_responded``).

Until the owner changes, the client's earlier requests can only arrive in the transaction that they were sent for: the
client begins the next one over a connection that has become the owner. After it has changed, they are challenged. So a
late request takes effect in its own transaction or not at all. It does not hold if two requests of the same kind are
sent over one connection without waiting for the response in between, and the connection is given up. Of the known
clients only kafkajs does that, on a cluster, with AddPartitionsToTxn after a time-out, which ends no transaction.

After a load the owner is not known, so the next request is challenged, or comes over a connection that was greeted
since.

Version 2 has an epoch for each transaction, and needs none of this.
"""

from enum import Enum, auto
from typing import Final, TypeAlias

from oncelog.coordinator.ports import ClientConnection
from oncelog.coordinator.transaction.state import NO_PRODUCER, ProducerIdAndEpoch

_NO_CONNECTION: Final = 0
_MOST_AWAITED: Final = 16
"""Responses to copies of one request; a connection notes all of them at once, so that more of them tell no more."""


class Action(Enum):
    """What a version-1 request does to a transaction."""

    ADD = auto()
    """AddPartitionsToTxn and AddOffsetsToTxn, which clients may have in flight together."""
    COMMIT = auto()
    ABORT = auto()
    COMMIT_OFFSETS = auto()
    """TxnOffsetCommit."""


Repeatable: TypeAlias = Action | int
"""What a request and its repetition have in common: the action, or the base sequence of a batch."""


class Challenge:
    """A request that was refused for its connection, and what its repetition must be like."""

    __slots__ = ("_action", "_awaited", "_connection_id", "_producer", "_responded_at")

    def __init__(self, producer: ProducerIdAndEpoch, connection_id: int, action: Repeatable) -> None:
        self._producer = producer
        self._connection_id = connection_id
        self._action = action
        self._awaited = 0
        """Responses to it that are not known to have arrived."""
        self._responded_at: int | None = None
        """How many requests had begun to arrive when the latest one had; None before the first one."""

    def note_challenged(self, connection: ClientConnection) -> None:
        """Note that the request is refused once more, and await the response."""
        if self._awaited < _MOST_AWAITED:
            self._awaited += 1
            connection.when_responded(self.note_response)

    def note_response(self, requests_received: int) -> None:
        """Note that a response has arrived at the client's machine."""
        self._awaited -= 1
        self._responded_at = requests_received

    def is_of(self, producer: ProducerIdAndEpoch, connection_id: int) -> bool:
        """Return whether the request that was challenged came from this producer over this connection."""
        return self._connection_id == connection_id and self._producer == producer

    def is_for(self, producer: ProducerIdAndEpoch, connection_id: int, action: Repeatable) -> bool:
        """Return whether a request is like the one that was challenged."""
        return self.is_of(producer, connection_id) and self._action == action

    def is_met(self, request_number: int) -> bool:
        """Return whether a request like the challenged one was sent after the response to it.

        If several were challenged, it was sent after all of these responses: copies that wait in the client's send
        queue arrive one after the other, each as soon as the one before has arrived here.
        """
        return not self._awaited and self._responded_at is not None and request_number > self._responded_at


class ConnectionChallenge:
    """The owner of one producer's transactions, and the challenge that another connection has to meet."""

    __slots__ = ("_challenge", "connection_id", "producer")

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        """The producer in the epoch in which a connection acts for it."""
        self.connection_id = _NO_CONNECTION
        """The owner. Requests of this connection take effect at once."""
        self._challenge: Challenge | None = None

    def grant(self, producer: ProducerIdAndEpoch, connection_id: int) -> None:
        """Make a connection the owner."""
        self.producer, self.connection_id, self._challenge = producer, connection_id, None

    def is_owner(self, producer: ProducerIdAndEpoch, connection_id: int) -> bool:
        """Return whether requests of the producer over a connection take effect at once."""
        return self.connection_id == connection_id and self.producer == producer

    def awaits(self, producer: ProducerIdAndEpoch, connection_id: int) -> bool:
        """Return whether a request of the producer over a connection has been challenged and is to be repeated."""
        return self._challenge is not None and self._challenge.is_of(producer, connection_id)

    def is_behind(
        self, producer: ProducerIdAndEpoch, action: Repeatable, connection_id: int, request_number: int
    ) -> bool:
        """Return whether a request was sent behind another one that was challenged, before the response to that."""
        challenge = self._challenge
        if challenge is None or not challenge.is_of(producer, connection_id):
            return False
        return not challenge.is_for(producer, connection_id, action) and not challenge.is_met(request_number)

    def admit(self, producer: ProducerIdAndEpoch, action: Repeatable, connection_id: int, request_number: int) -> bool:
        """Return whether a request takes effect; if it does, its connection is the owner from now on.

        ``request_number`` is its place among the requests of its connection, from 1.
        """
        if self.is_owner(producer, connection_id):
            return True
        challenge = self._challenge
        if challenge is None or not challenge.is_for(producer, connection_id, action):
            return False
        if not challenge.is_met(request_number):
            return False
        self.grant(producer, connection_id)
        return True

    def challenge(self, producer: ProducerIdAndEpoch, action: Repeatable, connection_id: int) -> Challenge:
        """Return what the repetition of a request that was not admitted has to meet.

        One challenge is kept: a connection that is challenged in between has to be challenged again.
        """
        challenge = self._challenge
        if challenge is None or not challenge.is_for(producer, connection_id, action):
            challenge = self._challenge = Challenge(producer, connection_id, action)
        return challenge


def is_challenged(
    owner: ConnectionChallenge, producer: ProducerIdAndEpoch, action: Repeatable, connection: ClientConnection
) -> bool:
    """Return whether a request must be refused with an error that clients retry, and await its repetition."""
    if owner.admit(producer, action, connection.id, connection.request_number()):
        return False
    owner.challenge(producer, action, connection.id).note_challenged(connection)
    return True
