"""How the application moves and pauses the reading of partitions: seek, reset, pause, resume."""

from collections.abc import Collection

from oncelog.clients.consumer.assigned_partitions import AssignedPartitions, FetchPosition, Phase, ResetPolicy
from oncelog.clients.consumer.background_reading import BackgroundReading
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.lifecycle import Lifecycle
from oncelog.clients.consumer.wakeup import Wakeup
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition


class PositionControl:
    """The positions of the assigned partitions, for the application. Raises ``IllegalState`` for any other one."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        partitions: AssignedPartitions,
        buffer: FetchBuffer,
        metadata: ConsumerMetadata,
        reading: BackgroundReading,
        wakeup: Wakeup,
    ) -> None:
        self._lifecycle = lifecycle
        self._partitions = partitions
        self._buffer = buffer
        self._metadata = metadata
        self._reading = reading
        self._wakeup = wakeup

    def seek(self, topic_partition: TopicPartition, place: OffsetAndMetadata) -> None:
        """Go on at an offset; if it has a leader epoch, once the leader's log is known to contain it."""
        position = FetchPosition(place.offset, place.leader_epoch, self._metadata.leader_of(topic_partition))
        self._partitions[topic_partition].seek(position)
        self._drop_fetched([topic_partition])

    def reset(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> None:
        """Go on where the policy says, in these or, if there are none, in all partitions."""
        chosen = [(tp, self._partitions[tp]) for tp in partitions or self._partitions]
        for _, partition in chosen:
            partition.reset(policy)
        self._drop_fetched([topic_partition for topic_partition, _ in chosen])

    def _drop_fetched(self, partitions: Collection[TopicPartition]) -> None:
        self._buffer.drop(partitions)
        self._wakeup.set()

    async def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record, once it is known. Raises what lookups of positions raise."""
        while (partition := self._partitions[topic_partition]).phase is not Phase.FETCHING:
            self._lifecycle.require_connected()
            self._reading.raise_failure()
            self._reading.begin_due()
            await self._wakeup.wait_for_next(self._partitions.next_retry_at)
        return partition.position.offset

    def set_paused(self, partitions: Collection[TopicPartition], paused: bool) -> None:
        """Stop or resume returning records of these. What has been fetched of them is kept."""
        for partition in [self._partitions[topic_partition] for topic_partition in partitions]:
            partition.paused = paused
        self._buffer.recount()
        self._wakeup.set()
