"""How the replicas of one broker work with those of others: who copies, who asks for changes of ISRs, who looks after
them. Loaded only by members of a cluster.
"""

from collections.abc import Callable

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.peers.replication_throttles import ReplicationThrottles
from oncelog.broker.replication.follower_session import FetcherSettings
from oncelog.broker.replication.isr_changes import AlterPartitionSender
from oncelog.broker.replication.replica_fetcher import ReplicaFetchers
from oncelog.broker.replication.replica_host import Supervise
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.clients.connection import Address
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.ports import BrokerChannel


class ClusterReplication:
    """Beside a `ReplicaManager`, while there are other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        controller: Controller,
        *,
        broker_id: int,
        channel: BrokerChannel,
        address_of: Callable[[int], Address | None],
        supervise: Supervise,
        throttles: ReplicationThrottles,
    ) -> None:
        """Before the controller's first order. ``address_of`` tells where another broker listens for brokers."""
        self._isr_changes = AlterPartitionSender(
            channel,
            broker_id=broker_id,
            broker_epoch=lambda: controller.broker_epoch,
            controller_id=lambda: controller.controller_id,
        )
        fetchers = self._fetchers = ReplicaFetchers(
            fetcher_settings(config, broker_id),
            address_of=address_of,
            broker_epoch=lambda: controller.broker_epoch,
            supervise=supervise,
            quota=throttles.follower,
        )
        throttles.on_change = fetchers.throttles_changed
        replicas.join_cluster(
            fetchers=fetchers,
            propose_isr=self._isr_changes.submit,
            broker_epoch=lambda: controller.broker_epoch,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            silence_max_ms=config.oncelog_replica_silence_max_ms,
            coordinator_silence_max_ms=config.oncelog_coordinator_silence_max_ms,
            fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
            quota=throttles.leader,
        )
        supervise(replicas.run_isr_checks, "checks of in-sync replicas")

    def leave(self) -> None:
        """This broker is about to stop: it takes up nothing new."""
        self._fetchers.leave()

    def stop(self) -> None:
        self._isr_changes.stop()


def fetcher_settings(config: BrokerConfig, broker_id: int) -> FetcherSettings:
    return FetcherSettings(
        replica_id=broker_id,
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        socket_timeout_ms=config.replica_socket_timeout_ms,
    )
