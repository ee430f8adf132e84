"""The replica side of a broker: real logs on a simulated disk, led by the controller's real orders.

Handlers get it as their broker: it has the attributes that the data APIs use.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.part_settings import transaction_config, verification_settings
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.fetch_session import FetchSessionCache
from oncelog.broker.replication.following_partition import FollowingPartition
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_host import ReplicaHost, loop_ms
from oncelog.broker.replication.replica_manager import Fetchers, ReplicaEvents, ReplicaManager
from oncelog.broker.security.authorizer import AllowAll, Authorizer
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.markers import MarkerWriter
from oncelog.broker.transactions.verification import TransactionVerifier
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.ports import CoordinatorHost
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.update_metadata import (
    FULL,
    INCREMENTAL,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.batches import with_header
from tests.unit.broker.deciding import Deciding
from tests.unit.broker.outcomes import without_shape

ME, OTHER = 1, 2
LISTENER = "PLAINTEXT"
LATEST_SECONDS = 1e9
LOG_DIR = "/data"


def topic_id(topic: str) -> bytes:
    return topic.encode().rjust(16, b"\0")[-16:]


def monotonic_ms() -> int:
    """The loop's clock, which stands still in a test without a loop."""
    try:
        return loop_ms()
    except RuntimeError:
        return 0


class NoProducerIds:
    """No one asks for one."""

    def next_nowait(self) -> int | None:
        return None

    async def next(self) -> int:
        raise AssertionError("a producer id was asked for")


def new_connection() -> ConnectionInfo:
    """A connection that is greeted after everything else, so that no request over it is late."""
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name=LISTENER)
    connection.greeted_at = LATEST_SECONDS
    return connection


class ReplicaSide:
    """One broker without a network, coordinators or a controller."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        host: Mapping[str, Any] | None = None,
        fetchers: Fetchers | None = None,
        **config: Any,
    ) -> None:
        """``host``: fields of the ``ReplicaHost`` that differ from those of a broker that is alone."""
        self.now_ms = 1_000_000
        self.connection = new_connection()
        """Over which requests come."""
        self.disk = disk or SimDisk()
        # There is no coordinator that could be asked.
        self.config = replace(BrokerConfig(), **{"transaction_partition_verification_enable": False} | config)
        self.authorizer: Authorizer = AllowAll()
        self.quotas = ClientQuotas()
        self.sliced_work = SlicedWork()
        self.response_memory = ResponseMemory(self.config.oncelog_responses_max_bytes)
        self.supervisor = Supervisor()
        self.metadata = MetadataCache()
        self.log_configs: dict[str, LogConfig] = {}
        self.elected: dict[TopicPartition, CoordinatorLog] = {}
        self.resigned: list[TopicPartition] = []
        self.storage_failures: list[TopicPartition] = []
        self.offsets_markers: list[tuple[int, int, bool]] = []
        self.registered_epochs: dict[int, int] = {}
        """Of the brokers that a controller tells of; without an entry it does not say."""
        self.log_manager = LogManager(
            self.disk, LOG_DIR, log_config=self.log_config, wall_clock=self.wall_clock, rng=Random(1)
        )
        self.log_manager.start()
        self.replica_manager = self._replica_manager(host or {}, fetchers)
        self.replica_control = ReplicaControl(self.replica_manager, self.log_manager, self.metadata, self.log_config)
        self.marker_writer = MarkerWriter(self.wall_clock)
        self.marker_writer.serve(self.replica_manager, self._on_offsets_marker)
        self.transaction_verifier = self._transaction_verifier()

    def _replica_manager(self, host: Mapping[str, Any], fetchers: Fetchers | None) -> ReplicaManager:
        slots = self.config.max_incremental_fetch_session_cache_slots
        return ReplicaManager(
            ReplicaHost(broker_id=ME, spawn=self.supervisor.spawn, now_ms=monotonic_ms, **host),
            log_manager=self.log_manager,
            metadata=self.metadata,
            fetch_sessions=FetchSessionCache(slots=slots, rng=Random(2)),
            events=ReplicaEvents(
                on_elected=self.elected.__setitem__,
                on_resigned=self.resigned.append,
                on_storage_failure=self.storage_failures.append,
            ),
            fetchers=fetchers,
        )

    def _transaction_verifier(self) -> TransactionVerifier:
        """Next to a coordinator that coordinates nothing."""
        channel = LocalChannel(ME, self.metadata, self.supervisor.spawn)
        host = CoordinatorHost(
            broker_id=ME,
            metadata=self.metadata,
            channel=channel,
            markers=self.marker_writer,
            tasks=self.supervisor,
            wall_clock=self.wall_clock,
        )
        coordinator = TransactionCoordinator(
            host, transaction_config(self.config), producer_ids=NoProducerIds(), features=FinalizedFeatureCache()
        )
        coordinators = TransactionCoordinators(
            coordinator, broker_id=ME, metadata=self.metadata, channel=channel, request_timeout_ms=1_000
        )
        return TransactionVerifier(self.replica_manager, coordinators, verification_settings(self.config))

    def _on_offsets_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        self.offsets_markers.append((partition, producer_id, commit))

    def wall_clock(self) -> int:
        return self.now_ms

    def log_config(self, topic: str) -> LogConfig:
        return self.log_configs.get(topic, LogConfig())

    # What the controller orders

    def lead(
        self,
        topic: str = "t",
        count: int = 1,
        *,
        epoch: int = 0,
        leader: int = ME,
        replicas: tuple[int, ...] = (ME,),
        isr: tuple[int, ...] | None = None,
        controller_epoch: int = 1,
        first: int = 0,
        config: LogConfig | None = None,
        id_of_topic: bytes | None = None,
        reported: bool = True,
        sequence: int = -1,
    ) -> LeaderAndIsrResponse:
        """LeaderAndIsr for some partitions, and the UpdateMetadata that follows."""
        if config is not None:
            self.log_configs[topic] = config
        name_id = topic_id(topic) if id_of_topic is None else id_of_topic
        in_sync = list(replicas if isr is None else isr)
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=controller_epoch,
                leader=leader,
                leader_epoch=epoch,
                isr=in_sync,
                replicas=list(replicas),
            )
            for index in range(first, first + count)
        ]
        response = self.replica_control.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=ME,
                controller_epoch=controller_epoch,
                topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=name_id, partition_states=states)],
                sequence=sequence,
            )
        )
        if reported:
            self.tell(topic, name_id, states, controller_epoch=controller_epoch)
        return response

    def tell(
        self,
        topic: str,
        name_id: bytes,
        states: list[LeaderAndIsrPartitionState],
        *,
        controller_epoch: int = 1,
        full: bool = False,
    ) -> None:
        partitions = [
            UpdateMetadataPartitionState(
                partition_index=state.partition_index,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                replicas=state.replicas,
            )
            for state in states
        ]
        brokers = [
            UpdateMetadataBroker(
                id=broker,
                rack=f"rack-{broker}",
                epoch=self.registered_epochs.get(broker, -1),
                endpoints=[UpdateMetadataEndpoint(host=f"broker-{broker}", port=9000 + broker, listener=LISTENER)],
            )
            for broker in (ME, OTHER)
        ]
        self.metadata.apply_update_metadata(
            UpdateMetadataRequest(
                controller_id=ME,
                type=FULL if full else INCREMENTAL,
                controller_epoch=controller_epoch,
                topic_states=[
                    UpdateMetadataTopicState(topic_name=topic, topic_id=name_id, partition_states=partitions)
                ],
                live_brokers=brokers,
            )
        )

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        partition = self.replica_manager.partition((topic, index))
        assert partition is not None
        return partition

    def leading(self, topic: str = "t", index: int = 0) -> LeadingPartition:
        """The partition, which must be led."""
        leading = self.partition(topic, index).leading
        assert leading is not None
        return leading

    def following(self) -> FollowingPartition:
        """The partition, which must be followed."""
        role = self.partition().role
        assert isinstance(role, FollowingPartition)
        return role

    def append(
        self, data: bytearray, topic: str = "t", index: int = 0, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        view, header = with_header(data)
        info = self.leading(topic, index).append(view, header, origin=origin, required_acks=1)
        assert isinstance(info, AppendInfo), info
        return info

    def follower_fetched(
        self, end: int, topic: str = "t", index: int = 0, *, replica_id: int = OTHER, log_start_offset: int = 0
    ) -> None:
        """A follower fetches from its log's end on."""
        error = self.leading(topic, index).follower_fetched(
            replica_id, end=end, log_start_offset=log_start_offset, broker_epoch=-1, knows_epoch=True
        )
        assert error is ErrorCode.NONE, error

    # Requests

    def call(
        self,
        handler: ApiHandler[Any],
        request: Message,
        version: int,
        *,
        client_id: str = "client",
        connection: ConnectionInfo | None = None,
    ) -> Any:
        """What the handler returns: a response, None, or a future."""
        assert version in handler.versions
        context = RequestContext(version, 1, client_id, connection or self.connection)
        return without_shape(handler(self, context, request))  # type: ignore[arg-type]

    def respond(self, handler: ApiHandler[Any], request: Message, version: int) -> Any:
        """The response of a request that need not wait for anything but its own work."""
        outcome = self.call(handler, request, version)
        if isinstance(outcome, Coroutine):
            with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(0))) as runner:
                outcome = runner.run(outcome)
        assert not isinstance(outcome, asyncio.Future), "the request waits"
        return outcome

    def restarted(self) -> "ReplicaSide":
        """Another process on the same disk, after this one ended cleanly."""
        self.log_manager.close()
        return ReplicaSide(self.disk)


class OnlyTopics(Deciding):
    """An authorizer that knows some names, whatever is to be done to them."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def authorize(self, context: RequestContext, operation: Any, resource_type: Any, name: str) -> bool:
        return name in self._names
