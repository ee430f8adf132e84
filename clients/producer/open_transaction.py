"""The partitions of one transaction, and whether its coordinator may know of it. Pure."""

from collections.abc import Iterable

from oncelog.protocol.topic_partition import TopicPartition


class OpenTransaction:
    """What has become part of the transaction since the last one ended."""

    def __init__(self) -> None:
        self.is_started = False
        """Whether the coordinator may know of the transaction, so that EndTxn has to be sent."""
        self.needs_epoch_bump = False
        """Whether the epoch has to be bumped after the end, in protocol version 1."""
        self.partitions: set[TopicPartition] = set()
        """Partitions that batches may be sent to."""
        self._new: set[TopicPartition] = set()
        """Partitions with records that have to be added by AddPartitionsToTxn first."""
        self._adding: frozenset[TopicPartition] = frozenset()
        """The partitions of the latest AddPartitionsToTxn, until it succeeds."""

    def write_to(self, topic_partition: TopicPartition, protocol: int) -> None:
        """Make a partition part of the transaction: in protocol version 2 at once, in version 1 by a request."""
        if protocol == 2:
            self.partitions.add(topic_partition)
            self.is_started = True
        elif topic_partition not in self._adding:
            self._new.add(topic_partition)

    def take_new_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions for the next AddPartitionsToTxn; empty if there are none."""
        if not self._new:
            return frozenset()
        self._adding = frozenset(self._new)
        self._new.clear()
        return self._adding

    def forget_new_partitions(self) -> None:
        """Drop the partitions that no request has added: nothing was written to them."""
        self._new.clear()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the coordinator has added partitions."""
        self._adding = frozenset()
        self.partitions.update(partitions)
        self.is_started = True
