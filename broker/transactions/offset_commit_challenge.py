"""The challenge of version-1 TxnOffsetCommits, at the leader of their group's partition.

The leader is often another broker than the transaction's coordinator, so it remembers by itself which connection acts
for a producer (``oncelog.coordinator.transaction.connection_challenge``). InitProducerId does not come here, but the
first commit of an epoch needs no challenge: its client has added the partition to the transaction before, so if that
transaction is over, its marker has left the epoch in the partition's producer state. A producer whose epoch is in there
has had a transaction here, and without an owner it is challenged.

An abort marker makes the leader forget the owner: a client that aborts may have given up the connection of a commit
that got no response, and need not come back over another one before its next transaction adds the group. After a
commit nothing can be late, since a client does not commit with an unanswered TxnOffsetCommit.

The owners of a partition are dropped with the leadership: meanwhile another leader may have had another owner. They are
bounded: beyond ``most_producers`` the one that was used least recently is forgotten, and is challenged once more.
"""

from collections import OrderedDict
from typing import Final

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.producer_state import ProducerStateEntry
from oncelog.coordinator.ports import ClientConnection
from oncelog.coordinator.transaction.connection_challenge import Action, ConnectionChallenge, is_challenged
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_OF_LATER_CLIENTS: Final = 3
"""Version of TxnOffsetCommit."""
MOST_PRODUCERS: Final = 5_000
"""Of one partition of the offsets topic. An entry is about 200 bytes."""


def challenge_error(api_version: int) -> ErrorCode:
    """Return the response to a challenged commit, one that the client retries at the same coordinator.

    Clients that know version 3 retry COORDINATOR_LOAD_IN_PROGRESS; one of them, franz-go, aborts at
    UNKNOWN_TOPIC_OR_PARTITION. The others retry the latter; one of them, kafkajs, looks for the former by a name that
    its table of errors does not have.
    """
    if api_version < _FIRST_OF_LATER_CLIENTS:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class _Owner(ConnectionChallenge):
    """The owner of one producer's offsets, until an abort marker comes."""

    __slots__ = ("abort_offset",)

    def __init__(self, abort_offset: int) -> None:
        super().__init__()
        self.abort_offset = abort_offset
        """Of the last abort marker before the owner became it; -1 if there was none."""


class _Owners:
    """The owners of one leadership, the one that was used least recently first."""

    def __init__(self, leading: LeadingPartition) -> None:
        self.leading = leading
        self.by_producer_id: OrderedDict[int, _Owner] = OrderedDict()


class OffsetCommitChallenges:
    """The connections that commit offsets in transactions of version 1, at the groups' partitions of one broker."""

    def __init__(
        self, replicas: ReplicaManager, *, is_enabled: bool = True, most_producers: int = MOST_PRODUCERS
    ) -> None:
        self._replicas = replicas
        self._is_enabled = is_enabled
        self._most_producers = most_producers
        self._owners: dict[TopicPartition, _Owners] = {}

    def is_challenged(
        self, partition: TopicPartition, producer: ProducerIdAndEpoch, connection: ClientConnection
    ) -> bool:
        """Return whether a commit must be refused with ``challenge_error``, and await its repetition."""
        if not self._is_enabled:
            return False
        leading = self._replicas.led_partition(partition)
        if isinstance(leading, ErrorCode):
            return False  # The group's coordinator returns its own error.
        entry = leading.log.producer_state.producers.get(producer.id)
        owner = self._owner(partition, leading, producer.id, -1 if entry is None else entry.abort_offset)
        if owner.producer != producer and not _has_epoch(entry, producer):
            owner.grant(producer, connection.id)
        return is_challenged(owner, producer, Action.COMMIT_OFFSETS, connection)

    def _owner(
        self, partition: TopicPartition, leading: LeadingPartition, producer_id: int, abort_offset: int
    ) -> _Owner:
        owners = self._owners.get(partition)
        if owners is None or owners.leading is not leading:
            owners = self._owners[partition] = _Owners(leading)
        by_producer_id = owners.by_producer_id
        owner = by_producer_id.get(producer_id)
        if owner is None or owner.abort_offset != abort_offset:
            owner = by_producer_id[producer_id] = _Owner(abort_offset)
        by_producer_id.move_to_end(producer_id)
        if len(by_producer_id) > self._most_producers:
            by_producer_id.popitem(last=False)
        return owner


def _has_epoch(entry: ProducerStateEntry | None, producer: ProducerIdAndEpoch) -> bool:
    """Return whether a commit or a marker of the producer's epoch is in the partition."""
    return entry is not None and entry.producer_epoch >= producer.epoch
