"""What only a consumer raises, each with the place in the partition that it is about."""

from collections.abc import Collection

from oncelog.clients.errors import ClientClosed, ClientError, Remedy
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition


class ConsumerError(ClientError):
    """What only a consumer raises."""


class ConsumerClosed(ConsumerError, ClientClosed):
    """The consumer was closed before this was done."""


class RebalanceInProgress(ConsumerError):
    """The group is being rebalanced, so nothing was committed. Poll, and commit again what is still assigned then."""

    remedy = Remedy.RETRY


class InstanceFenced(ConsumerError):
    """Another consumer has joined the group with the same ``group_instance_id``: this one is out, for good."""


class NoOffsetForPartition(ConsumerError):
    """Partitions without a committed offset, where ``auto_offset_reset`` is "none". Seek, and poll again."""

    remedy = Remedy.RECONFIGURE

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        super().__init__(f"no offset is committed for {', '.join(map(str, sorted(partitions)))}")
        self.partitions = frozenset(partitions)


class OffsetOutOfRange(ConsumerError):
    """A position that the partition does not have, where ``auto_offset_reset`` is "none". Seek, and poll again."""

    remedy = Remedy.RECONFIGURE

    def __init__(
        self, topic_partition: TopicPartition, position: int, reason: str = "the partition has no such offset"
    ) -> None:
        super().__init__(f"{topic_partition} at position {position}: {reason}")
        self.topic_partition = topic_partition
        self.position = position


class LogTruncated(OffsetOutOfRange):
    """What was read before ``position`` is no longer in the log: an unclean election has cut it (KIP-320).

    ``diverging`` is the first offset from which the log may differ from what was read, None if the leader does not
    know. Raised where ``auto_offset_reset`` is "none"; seek, and poll again.
    """

    def __init__(self, topic_partition: TopicPartition, position: int, diverging: OffsetAndMetadata | None) -> None:
        where = (
            "at an offset that the leader does not know" if diverging is None else f"from offset {diverging.offset} on"
        )
        super().__init__(topic_partition, position, f"the log was truncated {where}")
        self.diverging = diverging


class UnreadableRecords(ConsumerError):
    """A batch that cannot be read: damaged, of an unknown format, or too large. Its cause says more.

    The position stays before it, so polling again raises again; ``seek`` to ``next_offset`` passes it over. All that
    came before it has been returned.
    """

    def __init__(self, topic_partition: TopicPartition, position: int, next_offset: int | None, reason: str) -> None:
        skip = "" if next_offset is None else f"; seek to {next_offset} to pass it over"
        super().__init__(f"{topic_partition} at position {position}: {reason}{skip}")
        self.topic_partition = topic_partition
        self.position = position
        self.next_offset = next_offset


class AssignmentFailed(ConsumerError):
    """Members of the group do not understand each other: no partitions can be assigned."""

    remedy = Remedy.RECONFIGURE
