"""Brokers whose data directory takes no writes: others lead their partitions, as far as there are others.

A broker reports that its disk is full, or has room again, by a sequential znode under ``/log_dir_event_notification``,
as Apache Kafka's brokers report a failed log directory. The znode says only that there is something to ask: the
controller sends the broker all of its leaderships again, and the broker, while its disk is full, answers each with
KAFKA_STORAGE_ERROR. So a new controller learns it, too, from the answers to what it sends at its beginning. A broker
has one data directory: the answer is about all of its partitions.

While the disk of a broker is full, every partition with another in-sync replica on a reliable broker is led by that
one, and the full broker is in no such ISR, so that nothing waits for it. Where there is no other it goes on leading: it
can still be read. It is taken back into ISRs when it has room again and has caught up.
"""

import logging

from oncelog.coordinator.controller.leadership import UncleanAllowed, elect, tell, tell_leaderships
from oncelog.coordinator.controller.reign import Reign
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Watch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class FullDisks:
    """Those of one reign; ``ClusterState.full`` names them."""

    def __init__(self, reign: Reign, unclean_allowed: UncleanAllowed) -> None:
        self._reign = reign
        self._unclean_allowed = unclean_allowed

    async def read_reports(self, changed: Watch) -> None:
        """Take the reports away, and ask the brokers that made them."""
        session = self._reign.session
        names = await session.children(paths.LOG_DIR_EVENTS, changed) or []
        reports = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
        found = [znode for znode in await session.get_many(reports) if znode is not None]
        for path in reports:
            await session.delete(path)
        for broker_id in dict.fromkeys(znodes.decode_log_dir_event(znode.data) for znode in found):
            if broker_id in self._reign.state.brokers:
                await tell_leaderships(self._reign, broker_id)

    def is_news(self, broker_id: int, response: Message) -> bool:
        """Whether an answer says something else of a broker's disk than is known; if so, it is known now."""
        if not isinstance(response, LeaderAndIsrResponse) or response.error_code:
            return False
        codes = {error.error_code for topic in response.topics for error in topic.partition_errors}
        full, is_full = self._reign.state.full, codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        if not codes or is_full == (broker_id in full) or broker_id not in self._reign.state.brokers:
            return False
        full ^= {broker_id}
        return True

    async def follow(self, broker_id: int) -> None:
        """Give every partition on a broker whose disk is full, or has room again, the state that it needs now."""
        if broker_id in self._reign.state.full:
            logger.warning("The disk of broker %d is full: others lead its partitions, where they can", broker_id)
        else:
            logger.info("The disk of broker %d has room again", broker_id)
        await self._elect(list(self._reign.state.partitions_on(broker_id)))

    async def relieve(self, partitions: list[TopicPartition]) -> None:
        """Have partitions led elsewhere whose leader has a full disk and got company in the ISR."""
        state = self._reign.state
        led = [p for p in partitions if (known := state.state(p)) is not None and known.state.leader in state.full]
        if led:
            await self._elect(led)

    async def _elect(self, partitions: list[TopicPartition]) -> None:
        elected = await elect(self._reign, partitions, self._unclean_allowed)
        await tell(self._reign, elected, partitions)
