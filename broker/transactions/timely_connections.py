"""``TimelyConnections``: which connections carry only what was sent in the present transaction of a producer.

No request of such a connection is late, so it becomes the owner (``oncelog.broker.transactions.partition_owners``)
without a challenge. There are two kinds:

* a connection that was greeted (``ClientConnection.greeted_at``) after the last request of the owner, and after the
  producer's last abort, or if none is known after this leadership began. What its client has repeated over another
  connection, or has given up, was sent before;
* if there is no owner: the connection over which the producer's last request came to its transaction coordinator, if
  that is in this broker, and if it came after this leadership began. That request is of the present transaction, and a
  connection keeps its requests in order: what comes over it now was sent after all that another leader has done.
"""

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.replica_host import to_ms
from oncelog.broker.storage.producer_state_entry import ProducerStateEntry
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.partition_owners import PartitionOwner
from oncelog.coordinator.ports import NEVER, ClientConnection
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch


class TimelyConnections:
    """What a partition leader knows of its clients' connections by itself, and from the coordinator beside it."""

    __slots__ = ("_coordinators",)

    def __init__(self, coordinators: TransactionCoordinators) -> None:
        self._coordinators = coordinators

    def is_timely(
        self,
        connection: ClientConnection,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        leading: LeadingPartition,
        entry: ProducerStateEntry | None,
        owner: PartitionOwner,
    ) -> bool:
        """Return whether a connection is of these; ``entry``: what the partition's log knows of the producer."""
        if to_ms(connection.greeted_at) > last_doubt_ms(leading, entry) and connection.greeted_at > owner.acted_at:
            return True
        if owner.acted_at != NEVER:
            return False
        marker_epoch = -1 if entry is None else entry.coordinator_epoch
        return self._coordinators.is_owner(
            transactional_id, producer, connection, marker_epoch=marker_epoch, since_ms=leading.since_ms
        )


def last_doubt_ms(leading: LeadingPartition, entry: ProducerStateEntry | None) -> int:
    """Return until when a producer may have given something up here, by the loop's clock.

    A producer that was forgotten may have been one that had aborted.
    """
    if entry is None:
        return max(leading.since_ms, leading.log.producer_state.expired_ms)
    return max(leading.since_ms, entry.aborted_ms, entry.unknown_until_ms)
