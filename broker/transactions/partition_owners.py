"""Which connections act for the version-1 producers of the partitions that this broker leads.

The leader of a partition is often another broker than the transaction's coordinator, so it remembers by itself which
connection acts for a producer (``oncelog.coordinator.transaction.connection_challenge``). InitProducerId does not come
here, but the first request of an epoch needs no challenge: its client has added the partition to the transaction
before, so if that transaction is over, its marker has left the epoch in the partition's producer state. A producer
whose epoch is in there has had a transaction here, and without an owner it is challenged. So is one of which the state
has nothing: its marker may have gone with the log, if the topic was deleted and created again.

An abort marker makes the leader forget the owner: a client that aborts may have given up the connection of a request
that got no response, and need not come back over another one before its next transaction adds the partition. When the
partition forgets a producer that was idle for long, it forgets whether it had aborted, and the leader its owner.

The owners of a partition go with the leadership: meanwhile another leader may have had another owner. There are at
most as many as the partition has producers, or ``most_producers`` if that is more; beyond that the ones that were used
least recently are forgotten, and are challenged once more.
"""

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakKeyDictionary

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.storage.producer_state_entry import ProducerStateEntry
from oncelog.coordinator.ports import NEVER, ClientConnection
from oncelog.coordinator.transaction.connection_challenge import ConnectionChallenge
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch

MOST_PRODUCERS: Final = 5_000
"""Of one partition. An entry is about 200 bytes."""


class PartitionOwner(ConnectionChallenge):
    """The owner of one producer's requests to a partition, until an abort marker comes."""

    __slots__ = ("abort_offset", "acted_at", "unknown_until_ms")

    def __init__(self, abort_offset: int, unknown_until_ms: int, acted_at: float) -> None:
        super().__init__()
        self.acted_at = acted_at
        """When a TxnOffsetCommit of the owner last took effect, by the loop's clock; ``NEVER``: not since the abort."""
        self.abort_offset = abort_offset
        """Of the last abort marker before the owner became it; -1 if there was none."""
        self.unknown_until_ms = unknown_until_ms
        """When the partition may have forgotten the producer before that."""

    def holds(self, abort_offset: int, unknown_until_ms: int) -> bool:
        """Return whether there was no abort since, and the partition has not forgotten the producer."""
        return self.abort_offset == abort_offset and self.unknown_until_ms == unknown_until_ms

    def note_act(self) -> None:
        """Note that a request of the owner takes effect in this step."""
        self.acted_at = asyncio.get_running_loop().time()


class PartitionOwners:
    """The owners at the partitions of one broker."""

    __slots__ = ("_forgotten", "_most_producers", "_owners")

    def __init__(self, *, most_producers: int = MOST_PRODUCERS) -> None:
        self._most_producers = most_producers
        self._owners: WeakKeyDictionary[LeadingPartition, OrderedDict[int, PartitionOwner]] = WeakKeyDictionary()
        """By leadership and producer id; the one that was used least recently first."""
        self._forgotten: WeakKeyDictionary[LeadingPartition, float] = WeakKeyDictionary()
        """By leadership, when the last owner acted of those that were forgotten for want of room."""

    def owner(
        self,
        leading: LeadingPartition,
        entry: ProducerStateEntry | None,
        producer: ProducerIdAndEpoch,
        connection: ClientConnection,
    ) -> PartitionOwner:
        """Return the owner of a producer; ``entry``: what the partition's log knows of the producer.

        If the partition has had no transaction of this epoch, but of an earlier one, it is the connection.
        """
        owners = self._owners.get(leading)
        if owners is None:
            owners = self._owners[leading] = OrderedDict()
        abort_offset = -1 if entry is None else entry.abort_offset
        owner = owners.get(producer.id)
        unknown_until_ms = leading.log.producer_state.expired_ms if entry is None else entry.unknown_until_ms
        if owner is None or not owner.holds(abort_offset, unknown_until_ms):
            owner = PartitionOwner(abort_offset, unknown_until_ms, self._forgotten.get(leading, NEVER))
            owners[producer.id] = owner
            most = max(self._most_producers, len(leading.log.producer_state.producers))
            while len(owners) > most:
                _, forgotten = owners.popitem(last=False)
                self._forgotten[leading] = max(forgotten.acted_at, self._forgotten.get(leading, NEVER))
        owners.move_to_end(producer.id)
        if owner.producer != producer and entry is not None and entry.producer_epoch < producer.epoch:
            owner.grant(producer, connection.id)
        return owner
