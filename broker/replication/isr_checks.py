"""Periodic checks of the partitions that this broker leads: which followers join the ISR, lag, or are silent."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from oncelog.broker.process.containment import Containment
from oncelog.broker.replication.deserted_coordinators import DesertedCoordinators
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.coordinator.controller.cluster_image import MetadataCache, MetadataChange
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_LATE_MS: Final = 500
"""A check that comes so late finds fetches unread that have come meanwhile."""


class IsrChecks:
    """The checks of one member of a cluster."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._host = replicas.host
        self._deserted = DesertedCoordinators()
        metadata.add_listener(self._on_metadata_change)

    async def run(self) -> None:
        """Check for ever: for joining and silent followers often, for lagging ones more seldom.

        The broker's supervisor begins it again after an exception; a partition that raises one is checked, and then
        the others are.
        """
        seconds, since_ms = self._host.replica_lag_time_max_ms / 2000, self._host.now_ms()
        rest, last_ms = min(seconds, _RETRY_SECONDS), since_ms
        while True:
            await asyncio.sleep(rest)
            now_ms = self._host.now_ms()
            is_late, last_ms = now_ms - last_ms > rest * 1000 + _LATE_MS, now_ms
            is_lag_due = now_ms - since_ms >= seconds * 1000
            if is_lag_due:
                since_ms = now_ms
            try:
                self._check_all(now_ms, int(rest * 1000), is_lag_due=is_lag_due)
            finally:
                if not is_late:
                    self._log_deserted(now_ms)

    def _check_all(self, now_ms: int, expected_ms: int, *, is_lag_due: bool) -> None:
        """Check every partition that is led, and then raise the first exception that there was."""
        silence_changed = self._host.contacts.update_silent(now_ms, expected_ms)
        failures: list[Exception] = []
        contained = Containment(failures.append)
        for partition in list(self._replicas.led_partitions()):
            with contained:
                self._check(partition, silence_changed=silence_changed, is_lag_due=is_lag_due)
        if failures:
            raise failures[0]

    def _check(self, partition: LeadingPartition, *, silence_changed: bool, is_lag_due: bool) -> None:
        if silence_changed or not self._host.contacts.silent.isdisjoint(partition.progress.in_sync.isr):
            partition.check_silence()
        partition.progress.retry_expansion()
        if is_lag_due:
            partition.check_followers()

    def _log_deserted(self, now_ms: int) -> None:
        deserted = {led.topic_partition: led.last_fetches_ms() for led in self._replicas.deserted_coordinators()}
        line = self._deserted.update(now_ms, deserted)
        if line is not None:
            logger.log(line.level, line.text)

    def _on_metadata_change(self, change: MetadataChange) -> None:
        if change.before.brokers.keys() - change.after.brokers.keys():
            for partition in self._replicas.led_partitions():
                partition.brokers_left()
        for topic_partition in newly_offline(change):
            concerned = self._replicas.partition(topic_partition)
            if concerned is not None and concerned.leading is not None:
                concerned.leading.brokers_left()


def newly_offline(change: MetadataChange) -> Iterator[TopicPartition]:
    """Yield the partitions of which a replica has gone offline."""
    for name in change.topics:
        topic = change.after.topic(name)
        for index, partition in () if topic is None else topic.partitions.items():
            topic_partition = TopicPartition(name, index)
            before = change.before.partition(topic_partition)
            if before is not None and not set(partition.offline_replicas) <= set(before.offline_replicas):
                yield topic_partition
