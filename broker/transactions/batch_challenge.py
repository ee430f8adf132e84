"""The challenge of version-1 batches, at the leader of their partition.

A client that gets no response to a batch may give it up: it aborts, and begins its next transaction in the same epoch
and with the same sequence numbers. If the batch arrives then, neither its epoch nor its sequence shows that it is late,
and the coordinator verifies that the partition is in the transaction: it would be committed although it was aborted,
and the batch that its client sends with that number would be lost as a duplicate. But it comes over a connection that
the client has given up. So a batch that could be appended is challenged unless it comes over the connection that the
last one came over (``oncelog.broker.transactions.partition_owners``).

A connection that was greeted after the last abort carries nothing that was given up before
(``oncelog.broker.transactions.timely_connections``): it becomes the owner without a challenge. Of a producer that has
aborted nothing here in its epoch, so does one that was connected after this leadership began. So a client whose
connections break again and again is not challenged again and again. After an abort the time of the connection would
say nothing: while the packet was lost that ends its handshake, its client may have sent the batch and given it up.

No client is trusted by its name to get a new epoch after a batch with an unknown outcome (KIP-360). An abort of
librdkafka drops a batch that waits for its repetition, and its number goes to the next one; the Java client goes on in
the same epoch after a batch that failed while it commits or aborts; franz-go where the repetition got an error.

Only the batch that is next in sequence is challenged; its repetition is a batch with the same sequence over the same
connection. Batches that were in flight behind it get the same error, one on which clients retry all of them in order,
and not OUT_OF_ORDER_SEQUENCE_NUMBER, which some take for a loss. Batches over other connections are not held back by
it. A duplicate gets the response of the first time: it changes nothing, and makes no connection the owner.

A request without acks is not challenged, as it has no response.
"""

from typing import Final

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.replica_host import to_ms
from oncelog.broker.storage.producer_state import Accept, AppendOrigin, Duplicate
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.partition_owners import PartitionOwners
from oncelog.broker.transactions.timely_connections import TimelyConnections, last_doubt_ms
from oncelog.broker.transactions.verification_errors import FIRST_PRODUCE_THAT_ADDS
from oncelog.coordinator.transaction.connection_challenge import is_challenged
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader

CHALLENGE_ERROR: Final = ErrorCode.NOT_ENOUGH_REPLICAS
"""Every client sends the batch again to the same leader, without looking for another one."""


class BatchChallenges:
    """The connections that write in transactions of version 1, at the partitions of one broker."""

    __slots__ = ("_is_enabled", "_owners", "_timely")

    def __init__(self, coordinators: TransactionCoordinators, *, is_enabled: bool = True) -> None:
        self._is_enabled = is_enabled
        self._owners = PartitionOwners()
        self._timely = TimelyConnections(coordinators)

    def is_challenged(
        self, leading: LeadingPartition, header: BatchHeader, transactional_id: str, context: RequestContext
    ) -> bool:
        """Return whether a transactional batch must be refused with ``CHALLENGE_ERROR``, and await its repetition.

        Call it in the step of the append: a batch that it lets pass makes its connection the owner.
        """
        connection = context.connection
        if not self._is_enabled or context.api_version >= FIRST_PRODUCE_THAT_ADDS:
            return False
        state = leading.log.producer_state
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        entry = state.producers.get(header.producer_id)
        owner = self._owners.owner(leading, entry, producer, connection)
        if owner.is_owner(producer, connection.id):
            return False
        admitted = state.admit(header, AppendOrigin.CLIENT)
        if isinstance(admitted, Accept):
            has_aborted = entry is not None and entry.aborted_epoch >= producer.epoch
            is_young = not has_aborted and to_ms(connection.connected_after) > last_doubt_ms(leading, entry)
            if is_young or self._timely.is_timely(connection, transactional_id, producer, leading, entry, owner):
                owner.grant(producer, connection.id)
                return False
            if owner.is_behind(producer, header.base_sequence, connection.id, connection.request_number()):
                return True
            return is_challenged(owner, producer, header.base_sequence, connection)
        return not isinstance(admitted, Duplicate) and owner.awaits(producer, connection.id)
