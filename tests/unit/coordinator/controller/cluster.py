"""A cluster of controllers over one embedded store, with brokers that only take notes.

Each broker applies the metadata that it is told to a real ``MetadataCache``, keeps every request, and answers as told:
at once and well, not at all, or with a lost connection.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from oncelog.broker.metadata.metadata_journal import MetadataJournal
from oncelog.coordinator.controller.active_controller import ActiveController
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.config_changes import ConfigResource
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.control_channel import ControlChannel
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.controller_election import Elected, stand_for_election
from oncelog.coordinator.controller.controller_settings import ControllerSettings
from oncelog.coordinator.controller.finalized_features import (
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    FinalizedFeatureCache,
)
from oncelog.coordinator.controller.log_ends import LogEnd
from oncelog.coordinator.controller.recovery_strategy import RecoverySettings
from oncelog.coordinator.controller.recovery_waits import RecoveryWaits
from oncelog.coordinator.controller.topic_plan import TopicDefaults
from oncelog.coordinator.metadata_store.local import LocalEnsemble, LocalStore
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, RegisteredEndpoint
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk

R = TypeVar("R", bound=Message)
NOW_MS = 1_700_000_000_000
SUPPORTED_LEVELS = {TRANSACTION_VERSION: 2}


class Rules:
    """A ``ConfigValidator`` of three keys: two lists and a number."""

    def why_invalid(self, resource: ConfigResource, overrides: Mapping[str, str]) -> ApiError | None:
        for key, value in overrides.items():
            if key not in ("cleanup.policy", "retention.ms", "unclean.leader.election.enable"):
                return ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
            if key == "retention.ms" and not value.lstrip("-").isdigit():
                return ApiError(ErrorCode.INVALID_CONFIG, f"{key}={value} is not valid")
        return None

    def is_list(self, resource: ConfigResource, key: str) -> bool:
        return key == "cleanup.policy"

    def default_text(self, resource: ConfigResource, key: str) -> str:
        return "delete"


@dataclass
class NotingBroker:
    """What one broker was told."""

    requests: list[Message] = field(default_factory=list)
    metadata: MetadataCache = field(default_factory=MetadataCache)
    led: dict[TopicPartition, LeaderAndIsrPartitionState] = field(default_factory=dict)
    """The last that it was told of each partition of which it has a replica."""
    deleted: set[TopicPartition] = field(default_factory=set)
    responds: bool = True
    connected: bool = True
    delete_error: ErrorCode = ErrorCode.NONE
    log_end: LogEnd | None = None
    """Of each of its logs, as it reports it; None: it reports none, as an earlier release."""
    unanswered: list[tuple[Message, OnResponse]] = field(default_factory=list)

    def receive(self, request: Message, on_response: OnResponse) -> None:
        if not self.connected:
            on_response(None)
            return
        self.requests.append(request)
        response = self._apply(request)
        if self.responds:
            on_response(response)
        else:
            self.unanswered.append((response, on_response))

    def respond_to_all(self) -> None:
        self.responds = True
        for response, on_response in self.unanswered:
            on_response(response)
        self.unanswered.clear()

    def of_type(self, kind: type[R]) -> list[R]:
        return [request for request in self.requests if isinstance(request, kind)]

    def _apply(self, request: Message) -> Message:
        match request:
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        self.led[TopicPartition(topic.topic_name, state.partition_index)] = state
                return LeaderAndIsrResponse(topics=list(self._reports(request)))
            case UpdateMetadataRequest():
                return UpdateMetadataResponse(error_code=self.metadata.apply_update_metadata(request))
            case StopReplicaRequest():
                return StopReplicaResponse(partition_errors=list(self._stop(request)))
        raise AssertionError(f"not a control request: {request}")

    def _reports(self, request: LeaderAndIsrRequest) -> Iterator[LeaderAndIsrTopicError]:
        """Yield the log end of each partition, if this broker is of a release that reports it."""
        if self.log_end is None:
            return
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrPartitionError(
                    partition_index=state.partition_index,
                    last_leader_epoch=self.log_end.leader_epoch,
                    log_end_offset=self.log_end.offset,
                )
                for state in topic.partition_states
            ]
            yield LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)

    def _stop(self, request: StopReplicaRequest) -> list[StopReplicaPartitionError]:
        stopped = [
            TopicPartition(t.topic_name, p.partition_index) for t in request.topic_states for p in t.partition_states
        ]
        if self.delete_error is ErrorCode.NONE:
            self.deleted.update(stopped)
        return [
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=self.delete_error)
            for topic, index in stopped
        ]


class NotingChannel:
    """A ``BrokerChannel`` to noting brokers. They are called in the same step, as the local broker is."""

    def __init__(self, brokers: dict[int, NotingBroker]) -> None:
        self._brokers = brokers

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        self._brokers[broker_id].receive(request, on_response)


@dataclass
class Member:
    """One broker of the cluster: its controller, its client of the store, and its dynamic configuration."""

    controller: Controller
    apis: ControllerApis
    store: LocalStore
    configs: ConfigRepository
    features: FinalizedFeatureCache
    task: "asyncio.Task[None] | None" = None

    @property
    def session(self) -> Session:
        assert self.store.session is not None
        return self.store.session

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self.store.close()


class ClusterUnderTest:
    """Members over one ensemble, whose disk may crash with all of them."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimDisk()
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        self.rng = random.Random(seed)
        self.brokers: dict[int, NotingBroker] = {}
        self.members: dict[int, Member] = {}
        self.balance: tuple[float | None, int] = (None, 10)
        """How often leadership returns by itself, and what percentage away is tolerated."""
        self.refusals: dict[int, list[str]] = {}
        """Why a broker said that it cannot serve any more."""
        self.ensemble = self._open()

    def _open(self) -> LocalEnsemble:
        return LocalEnsemble(MetadataJournal(self.disk, "/data"))

    def member(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        unclean: bool = False,
        supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
        begins_with: Mapping[str, int] = SUPPORTED_LEVELS,
        min_insync_replicas: int | None = None,
    ) -> Member:
        """A broker that has not started yet; ``begins_with`` is what it finalises if the cluster is new."""
        store = self.ensemble.connect()
        configs, features = ConfigRepository(store, Rules()), FinalizedFeatureCache(supported)
        features.on_incompatible = self.refusals.setdefault(broker_id, []).append
        endpoint = RegisteredEndpoint(listener="PLAINTEXT", host=f"host{broker_id}", port=9092)
        self.brokers.setdefault(broker_id, NotingBroker())
        settings = ControllerSettings(
            registration=BrokerRegistration(
                broker_id=broker_id,
                endpoints=(endpoint,),
                rack=rack,
                features=supported,
                min_insync_replicas=min_insync_replicas,
            ),
            listener_name="PLAINTEXT",
            defaults=TopicDefaults(partition_count=2, replication_factor=1),
            features=begins_with,
            balance_seconds=self.balance[0],
            tolerated_imbalance_percentage=self.balance[1],
        )
        controller = Controller(
            settings,
            store=store,
            configs=configs,
            features=features,
            channel=NotingChannel(self.brokers),
            wall_clock=lambda: NOW_MS,
            rng=self.rng,
        )
        controller.stored.set_recovery(RecoverySettings(unclean_election=unclean))
        apis = ControllerApis(controller, Rules(), self.rng)
        self.members[broker_id] = Member(controller, apis, store, configs, features)
        return self.members[broker_id]

    async def start(
        self,
        *broker_ids: int,
        unclean: bool = False,
        supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
        begins_with: Mapping[str, int] = SUPPORTED_LEVELS,
    ) -> Member:
        """Start brokers; returns the first, which is the controller if none was before."""
        for broker_id in broker_ids:
            member = self.member(broker_id, unclean=unclean, supported=supported, begins_with=begins_with)
            await member.controller.start()
            member.task = asyncio.get_running_loop().create_task(member.controller.run())
        await self.settle()
        return self.members[broker_ids[0]]

    async def kill(self, broker_id: int) -> None:
        """End a broker without any farewell; the ensemble notices at once."""
        member = self.members.pop(broker_id)
        assert member.task is not None
        member.task.cancel()
        await asyncio.wait([member.task])
        self.brokers[broker_id].connected = False
        self.ensemble.close_session(member.session.session_id)
        await self.settle()

    async def restart(self, broker_id: int) -> None:
        self.brokers[broker_id] = NotingBroker()
        await self.start(broker_id)

    async def crash(self) -> None:
        """A power loss of everything; afterwards members are started anew."""
        for member in self.members.values():
            if member.task is not None:
                member.task.cancel()
                await asyncio.wait([member.task])
        self.members.clear()
        self.brokers.clear()
        self.disk.crash("power", self.rng)
        self.ensemble = self._open()

    def lose_notifications(self) -> None:
        """Remove all watches: no session notices the next changes before it reads or writes."""
        self.ensemble._data_watches.pop_all()
        self.ensemble._child_watches.pop_all()

    async def settle(self) -> None:
        """Let everything happen that happens without time passing."""
        for _ in range(200):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        for member in self.members.values():
            await member.stop()

    @property
    def controller(self) -> Controller:
        active = [member.controller for member in self.members.values() if member.controller.is_active]
        assert len(active) == 1
        return active[0]

    @property
    def apis(self) -> ControllerApis:
        return self.members[self.controller.broker_id].apis

    @property
    def active(self) -> ActiveController:
        active = self.controller.active
        assert active is not None
        return active

    async def context_of_outsider(self, session: Session) -> ControllerContext:
        """Elect a controller that is none of the cluster's brokers; its session lasts longer than its epoch."""
        elected = await stand_for_election(session, 1, 0, lambda: None)
        assert isinstance(elected, Elected)
        self.brokers.setdefault(1, NotingBroker())
        state = ClusterState()
        channel = NotingChannel(self.brokers)
        control = ControlChannel(channel, lambda broker_id, request, response: None, lambda broker_id: None)
        return ControllerContext(
            session=session,
            elected=elected,
            state=state,
            control=control,
            controller_id=1,
            listener_name="PLAINTEXT",
            waits=RecoveryWaits(state, lambda: NOW_MS),
        )


@asynccontextmanager
async def running_cluster(
    *broker_ids: int, unclean: bool = False, balance: tuple[float | None, int] = (None, 10)
) -> AsyncIterator[ClusterUnderTest]:
    cluster = ClusterUnderTest()
    cluster.balance = balance
    try:
        if broker_ids:
            await cluster.start(*broker_ids, unclean=unclean)
        yield cluster
    finally:
        await cluster.stop()
