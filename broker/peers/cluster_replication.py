"""How the replicas of one broker work with those of others: fetchers, proposals to change an ISR, periodic checks.

Loaded only by members of a cluster. It is made before the ``ReplicaManager``, which is complete when it is made.
"""

from collections.abc import Callable
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.peers.cluster_channel import ClusterChannel
from oncelog.broker.peers.replication_throttles import ReplicationThrottles
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.deserted_coordinators import desertion_ms
from oncelog.broker.replication.follower_contacts import FollowerContacts
from oncelog.broker.replication.follower_session import FetcherSettings
from oncelog.broker.replication.isr_changes import AlterPartitionSender
from oncelog.broker.replication.isr_checks import IsrChecks
from oncelog.broker.replication.replica_fetcher import ReplicaFetchers
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.controller import Controller
from oncelog.protocol.topic_partition import TopicPartition

_UNKNOWN: Final = -1


class ClusterReplication:
    """Beside a ``ReplicaManager``, while there are other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        *,
        channel: ClusterChannel,
        metadata: MetadataCache,
        configs: ConfigRepository,
        supervisor: Supervisor,
        controller: Callable[[], Controller | None],
    ) -> None:
        """Make the parts before the dynamic configuration is loaded; ``controller`` returns this broker's, or None."""
        self._metadata = metadata
        self._controller = controller
        self._supervisor = supervisor
        throttles = ReplicationThrottles(config, broker_id, configs=configs, metadata=metadata)
        self._isr_changes = AlterPartitionSender(
            channel, broker_id=broker_id, broker_epoch=self._broker_epoch, controller_id=self._controller_id
        )
        self.fetchers = ReplicaFetchers(
            fetcher_settings(config, broker_id),
            address_of=channel.address_of,
            broker_epoch=self._broker_epoch,
            supervise=supervisor.supervise,
            quota=throttles.follower,
            security=channel.security,
        )
        throttles.on_change = self.fetchers.throttles_changed
        contacts, fetch_wait_ms = FollowerContacts(), config.replica_fetch_wait_max_ms
        contacts.limit(config.oncelog_replica_silence_max_ms, fetch_wait_ms)
        self.host = ReplicaHost(
            broker_id=broker_id,
            spawn=supervisor.spawn,
            broker_epoch=self._broker_epoch,
            is_alive=self._is_alive,
            is_offline=self._is_offline,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            desertion_ms=desertion_ms(config.oncelog_coordinator_silence_max_ms, fetch_wait_ms),
            propose_isr=self._isr_changes.submit,
            contacts=contacts,
            quota=throttles.leader,
        )
        """Of this broker's partitions."""

    def start_checks(self, replicas: ReplicaManager) -> None:
        """Check the in-sync replicas from now on."""
        self._supervisor.supervise(IsrChecks(replicas, self._metadata).run, "checks of in-sync replicas")

    def leave(self) -> None:
        """Follow nothing new: this broker is about to stop."""
        self.fetchers.leave()

    def stop(self) -> None:
        """Propose no change of an ISR any more."""
        self._isr_changes.stop()

    def _broker_epoch(self) -> int:
        controller = self._controller()
        return _UNKNOWN if controller is None else controller.broker_epoch

    def _controller_id(self) -> int:
        controller = self._controller()
        return _UNKNOWN if controller is None else controller.controller_id

    def _is_alive(self, broker_id: int) -> bool:
        return broker_id in self._metadata.image.brokers

    def _is_offline(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        known = self._metadata.image.partition(topic_partition)
        return known is not None and broker_id in known.offline_replicas


def fetcher_settings(config: BrokerConfig, broker_id: int) -> FetcherSettings:
    """Return what the fetchers need to know of the configuration."""
    return FetcherSettings(
        replica_id=broker_id,
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        socket_timeout_ms=config.replica_socket_timeout_ms,
    )
