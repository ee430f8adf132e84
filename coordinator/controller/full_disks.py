"""Brokers that cannot write: other replicas lead their partitions, where there are any.

A broker reports that its disk is full, or has room again, by a sequential znode under ``/log_dir_event_notification``,
as Apache Kafka's brokers report a failed log directory. The znode names only the broker. The controller sends it all of
its leaderships again, and a broker whose disk is full responds to each with KAFKA_STORAGE_ERROR. A new controller
learns of full disks in the same way, from the responses to its first requests. A broker has one data directory: the
response is about all of its partitions. Replicas with an error of their own, a log that cannot be opened, say, respond
with that one, in whatever portions the partitions are sent.

While the disk of a broker is full, every partition with another in-sync replica on a reliable broker is led by that
one, and the full broker is in no such ISR, so that no write waits for it. Where there is no other replica it remains
the leader: it can still be read. It returns to ISRs when it has room again and has caught up.

A broker that may open no more files can still write where no new file is needed. So this is about single replicas
(``unwritable_replicas``), with the same reports and the same effects.
"""

import logging
from collections.abc import Set as AbstractSet
from typing import Final

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes, send_leaderships
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Watch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_CARRIED_OUT: Final = frozenset({ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH})
"""Of a replica whose broker has room; a full one returns KAFKA_STORAGE_ERROR instead."""


class FullDisks:
    """The full disks of one controller epoch; ``ClusterState.full`` has the brokers."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._changed: set[TopicPartition] = set()
        """Of which a replica cannot be written, or can be again, and whose leaders are to be elected."""

    async def read_reports(self, changed: Watch) -> None:
        """Remove the reports, and send their brokers LeaderAndIsr: the responses say whether a disk is full."""
        session = self._context.session
        names = await session.children(paths.LOG_DIR_EVENTS, changed) or []
        reports = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
        found = [znode for znode in await session.get_many(reports) if znode is not None]
        for path in reports:
            await session.delete(path)
        for broker_id in dict.fromkeys(znodes.decode_log_dir_event(znode.data) for znode in found):
            if broker_id in self._context.state.brokers:
                await send_leaderships(self._context, broker_id)

    def note_response(self, broker_id: int, response: Message) -> bool:
        """Note what a response says of a broker's disk; return whether that is new."""
        if not isinstance(response, LeaderAndIsrResponse) or response.error_code:
            return False
        codes = {error.error_code for topic in response.topics for error in topic.partition_errors}
        full, is_full = self._context.state.full, _is_full(codes)
        if is_full in (None, broker_id in full) or broker_id not in self._context.state.brokers:
            return False
        full ^= {broker_id}
        return True

    def note_replicas(self, broker_id: int, response: Message) -> bool:
        """Note which replicas a broker can write; return whether that has changed. ``apply_to_replicas`` follows."""
        state = self._context.state
        if not isinstance(response, LeaderAndIsrResponse) or response.error_code or broker_id not in state.brokers:
            return False
        changes = state.unwritable.take(broker_id, response, state.topic_names)
        if changes.unwritable:
            logger.warning(
                "Broker %d can open no file for %d replicas, that of %s among them: others lead them, where they can",
                broker_id,
                len(changes.unwritable),
                min(changes.unwritable),
            )
        if changes.writable:
            logger.info("Broker %d can write %d replicas again", broker_id, len(changes.writable))
        self._changed.update(changes.unwritable, changes.writable)
        return bool(changes.unwritable or changes.writable)

    async def apply_to_replicas(self) -> None:
        """Elect leaders of the partitions of which a replica cannot be written, or can be written again."""
        changed, self._changed = sorted(self._changed), set()
        await self._elect([partition for partition in changed if partition.topic in self._context.state.topics])

    async def apply_change(self, broker_id: int) -> None:
        """Elect leaders of the partitions on a broker whose disk is full, or has room again."""
        if broker_id in self._context.state.full:
            logger.warning("The disk of broker %d is full: others lead its partitions, where they can", broker_id)
        else:
            logger.info("The disk of broker %d has room again", broker_id)
        await self._elect(list(self._context.state.partitions_on(broker_id)))

    async def relieve(self, partitions: list[TopicPartition]) -> None:
        """Elect other leaders of those partitions whose leader cannot write, now that their ISR has grown."""
        state = self._context.state
        led = [
            partition
            for partition in partitions
            if (known := state.state(partition)) is not None
            and (known.state.leader in state.full or known.state.leader in state.unwritable.of(partition))
        ]
        if led:
            await self._elect(led)

    async def _elect(self, partitions: list[TopicPartition]) -> None:
        elected = await elect(self._context, partitions)
        await send_changes(self._context, elected, partitions)


def _is_full(codes: AbstractSet[int]) -> bool | None:
    """Return whether the disk of a broker with these errors is full; None: they are about single replicas only."""
    if ErrorCode.KAFKA_STORAGE_ERROR in codes:
        return True
    return None if _CARRIED_OUT.isdisjoint(codes) else False
