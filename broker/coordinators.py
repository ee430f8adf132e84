"""``Coordinators``: the group coordinator and the transaction coordinator of a broker."""

import random

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.part_settings import group_settings, transaction_config
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.group.coordinator import GroupCoordinator
from oncelog.coordinator.ports import CoordinatorHost
from oncelog.coordinator.producer_ids import ProducerIds
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition


class Coordinators:
    """Both coordinators. Each is elected by leading partitions of its internal topic."""

    def __init__(self, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
        self.groups = groups
        self.transactions = transactions

    def on_elected(self, partition: TopicPartition, log: CoordinatorLog) -> None:
        """Begin to coordinate by a partition of an internal topic, which this broker leads from now on."""
        self._coordinator(partition).on_elected(partition.partition, log)

    def on_resigned(self, partition: TopicPartition) -> None:
        """Stop coordinating by a partition of an internal topic, which this broker leads no more."""
        self._coordinator(partition).on_resigned(partition.partition)

    def _coordinator(self, partition: TopicPartition) -> GroupCoordinator | TransactionCoordinator:
        return self.groups if partition.topic == GROUP_METADATA_TOPIC_NAME else self.transactions

    def start(self) -> None:
        """Start the periodic work of both."""
        self.groups.start()
        self.transactions.start()

    def stop(self) -> None:
        """Stop both; the group coordinator responds to its parked requests."""
        self.transactions.stop()
        self.groups.stop()


def make_coordinators(
    config: BrokerConfig,
    host: CoordinatorHost,
    rng: random.Random,
    *,
    producer_ids: ProducerIds,
    features: FinalizedFeatureCache,
) -> Coordinators:
    """Return the coordinators of one broker, not started."""
    groups = GroupCoordinator(
        settings=group_settings(config),
        metadata=host.metadata,
        tasks=host.tasks,
        wall_clock=host.wall_clock,
        rng=rng,
    )
    transactions = TransactionCoordinator(
        host, transaction_config(config), producer_ids=producer_ids, features=features
    )
    return Coordinators(groups, transactions)
