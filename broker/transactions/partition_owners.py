"""Which connections act for the version-1 producers of the partitions that this broker leads.

The leader of a partition is often another broker than the transaction's coordinator, so it remembers by itself which
connection acts for a producer (``oncelog.coordinator.transaction.connection_challenge``). InitProducerId does not come
here, but the first request of an epoch needs no challenge: its client has added the partition to the transaction
before, so if that transaction is over, its marker has left the epoch in the partition's producer state. A producer
whose epoch is in there has had a transaction here, and without an owner it is challenged.

An abort marker makes the leader forget the owner: a client that aborts may have given up the connection of a request
that got no response, and need not come back over another one before its next transaction adds the partition.

The owners of a partition are dropped with the leadership: meanwhile another leader may have had another owner. There
are at most as many as the partition has producers, or ``most_producers`` if that is more; beyond that the one that was
used least recently is forgotten, and is challenged once more.
"""

from collections import OrderedDict
from typing import Final

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.storage.producer_state import ProducerStateEntry
from oncelog.coordinator.ports import ClientConnection
from oncelog.coordinator.transaction.connection_challenge import ConnectionChallenge
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.topic_partition import TopicPartition

MOST_PRODUCERS: Final = 5_000
"""Of one partition. An entry is about 200 bytes."""


class PartitionOwner(ConnectionChallenge):
    """The owner of one producer's requests to a partition, until an abort marker comes."""

    __slots__ = ("abort_offset",)

    def __init__(self, abort_offset: int) -> None:
        super().__init__()
        self.abort_offset = abort_offset
        """Of the last abort marker before the owner became it; -1 if there was none."""


class _Owners:
    """The owners of one leadership, the one that was used least recently first."""

    __slots__ = ("by_producer_id", "leading")

    def __init__(self, leading: LeadingPartition) -> None:
        self.leading = leading
        self.by_producer_id: OrderedDict[int, PartitionOwner] = OrderedDict()


class PartitionOwners:
    """The owners at the partitions of one broker."""

    __slots__ = ("_most_producers", "_owners")

    def __init__(self, *, most_producers: int = MOST_PRODUCERS) -> None:
        self._most_producers = most_producers
        self._owners: dict[TopicPartition, _Owners] = {}

    def owner(
        self,
        leading: LeadingPartition,
        entry: ProducerStateEntry | None,
        producer: ProducerIdAndEpoch,
        connection: ClientConnection,
    ) -> PartitionOwner:
        """Return the owner of a producer; ``entry``: what the partition's log knows of the producer.

        If the partition has had no transaction of this epoch, it is the connection.
        """
        owners = self._owners.get(leading.topic_partition)
        if owners is None or owners.leading is not leading:
            owners = self._owners[leading.topic_partition] = _Owners(leading)
        by_producer_id, abort_offset = owners.by_producer_id, -1 if entry is None else entry.abort_offset
        owner = by_producer_id.get(producer.id)
        if owner is None or owner.abort_offset != abort_offset:
            owner = by_producer_id[producer.id] = PartitionOwner(abort_offset)
            if len(by_producer_id) > max(self._most_producers, len(leading.log.producer_state.producers)):
                by_producer_id.popitem(last=False)
        by_producer_id.move_to_end(producer.id)
        if owner.producer != producer and (entry is None or entry.producer_epoch < producer.epoch):
            owner.grant(producer, connection.id)
        return owner
