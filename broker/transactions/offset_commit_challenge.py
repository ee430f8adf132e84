"""The challenge of version-1 TxnOffsetCommits, at the leader of their group's partition.

Who the owner is, ``oncelog.broker.transactions.partition_owners`` says. A commit leaves the owner: what the client has
not given up it has repeated over the owner.
"""

from typing import Final

from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.partition_owners import MOST_PRODUCERS, PartitionOwners
from oncelog.broker.transactions.timely_connections import TimelyConnections
from oncelog.coordinator.ports import ClientConnection
from oncelog.coordinator.transaction.connection_challenge import Action, is_challenged
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_OF_LATER_CLIENTS: Final = 3
"""Version of TxnOffsetCommit."""


def challenge_error(api_version: int) -> ErrorCode:
    """Return the response to a challenged commit, one that the client retries at the same coordinator.

    Clients that know version 3 retry COORDINATOR_LOAD_IN_PROGRESS; one of them, franz-go, aborts at
    UNKNOWN_TOPIC_OR_PARTITION. The others retry the latter; one of them, kafkajs, looks for the former by a name that
    its table of errors does not have.
    """
    if api_version < _FIRST_OF_LATER_CLIENTS:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class OffsetCommitChallenges:
    """The connections that commit offsets in transactions of version 1, at the groups' partitions of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        coordinators: TransactionCoordinators,
        *,
        is_enabled: bool = True,
        most_producers: int = MOST_PRODUCERS,
    ) -> None:
        self._replicas = replicas
        self._is_enabled = is_enabled
        self._owners = PartitionOwners(most_producers=most_producers)
        self._timely = TimelyConnections(coordinators)

    def is_challenged(
        self,
        partition: TopicPartition,
        producer: ProducerIdAndEpoch,
        transactional_id: str,
        connection: ClientConnection,
    ) -> bool:
        """Return whether a commit must be refused with ``challenge_error``, and await its repetition."""
        if not self._is_enabled:
            return False
        leading = self._replicas.led_partition(partition)
        if isinstance(leading, ErrorCode):
            return False  # The group's coordinator returns its own error.
        entry = leading.log.producer_state.producers.get(producer.id)
        owner = self._owners.owner(leading, entry, producer, connection)
        if not owner.is_owner(producer, connection.id):
            if self._timely.is_timely(connection, transactional_id, producer, leading, entry, owner):
                owner.grant(producer, connection.id)
        if is_challenged(owner, producer, Action.COMMIT_OFFSETS, connection):
            return True
        owner.note_act()
        return False
