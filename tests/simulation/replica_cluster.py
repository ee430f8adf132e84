"""The replica sides of several brokers, with real connections between them, and a scripted controller.

Each member has a process, a disk, a port at which it answers fetches, and a `ReplicaFetcher` for every other. What is
left out is all the rest of a broker: the controller's orders are plain calls that take a while, and its responses to
AlterPartition follow Kafka's rules on a state that the test can see.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listener
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.handlers.api_versions import handle_api_versions
from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from oncelog.broker.network.socket_server import SocketServer
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.fetch_session import FetchSessionCache
from oncelog.broker.replication.follower_session import FetcherSettings
from oncelog.broker.replication.isr_changes import AlterPartitionSender
from oncelog.broker.replication.isr_checks import IsrChecks
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_fetcher import ReplicaFetchers
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_manager import ReplicaEvents, ReplicaManager
from oncelog.broker.security.authorizer import AllowAll
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.clients.connection import Address
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import CrashKind
from tests.simulation.stopping_disk import StoppingDisk
from tests.simulation.virtual_loop import SimProcess, VirtualLoop

P = ParamSpec("P")
R = TypeVar("R")

TOPIC = "t"
TOPIC_ID = b"topic id of t   "
LOG_DIR = "/data"
LISTENER = "PLAINTEXT"
NO_LEADER = -1
SETTINGS = FetcherSettings(replica_id=-1, backoff_ms=200, socket_timeout_ms=5_000)
LAG_MS = 2_000


@dataclass(slots=True, kw_only=True)
class State:
    """A partition in the metadata store."""

    leader: int
    leader_epoch: int = 0
    isr: tuple[int, ...]
    version: int = 0


class Member:
    """One broker's replicas. It can be killed, lose power, and start again."""

    def __init__(self, cluster: "ReplicaCluster", broker_id: int) -> None:
        self._cluster = cluster
        self.broker_id = broker_id
        self.port = 9_100 + broker_id
        self.disk = StoppingDisk()
        self.disk.name = f"disk of broker {broker_id}"
        self.epoch = -1
        self.process: SimProcess | None = None
        self.config = BrokerConfig()
        self.authorizer = AllowAll()
        self.quotas = ClientQuotas()
        self.sliced_work = SlicedWork()
        self.features = FinalizedFeatureCache()
        self.handlers: tuple[ApiHandler[Any], ...] = (
            handle_api_versions,
            handle_fetch,
            handle_list_offsets,
            handle_offset_for_leader_epoch,
        )
        self.elected: dict[TopicPartition, CoordinatorLog] = {}

    async def start(self) -> None:
        self._cluster.loop.journal.note(f"broker {self.broker_id}", "start")
        self.epoch = self._cluster.next_broker_epoch()
        self.process = SimProcess(self._cluster.loop, f"broker {self.broker_id}")
        await self.process.run(self._start())

    async def _start(self) -> None:
        self.metadata = MetadataCache()
        self.supervisor = Supervisor()
        self.log_manager = LogManager(
            self.disk,
            LOG_DIR,
            log_config=lambda topic: self._cluster.log_config,
            wall_clock=lambda: 1_000_000,
            rng=random.Random(self.broker_id),
        )
        self.log_manager.start()
        self._join()
        server = SocketServer(self.config, self.supervisor)
        self.response_memory = server.response_memory
        listener = Listener(name=LISTENER, host="127.0.0.1", port=self.port, security_protocol="PLAINTEXT")
        await server.bind([listener], listener.name)
        await server.serve(Dispatcher(self, self.handlers))  # type: ignore[arg-type]

    def _replica_manager(self, host: ReplicaHost, fetchers: ReplicaFetchers) -> ReplicaManager:
        return ReplicaManager(
            host,
            log_manager=self.log_manager,
            metadata=self.metadata,
            fetch_sessions=FetchSessionCache(slots=100, rng=random.Random(self.epoch)),
            events=ReplicaEvents(
                on_elected=self.elected.__setitem__,
                on_resigned=lambda partition: None,
                on_storage_failure=lambda partition: None,
            ),
            fetchers=fetchers,
        )

    def _join(self) -> None:
        epoch = self.epoch
        changes = AlterPartitionSender(
            self, broker_id=self.broker_id, broker_epoch=lambda: epoch, controller_id=lambda: 0
        )
        fetchers = ReplicaFetchers(
            replace(SETTINGS, replica_id=self.broker_id),
            address_of=lambda broker_id: Address("127.0.0.1", self._cluster[broker_id].port),
            broker_epoch=lambda: epoch,
            supervise=self.supervisor.supervise,
        )
        host = ReplicaHost(
            broker_id=self.broker_id,
            spawn=self.supervisor.spawn,
            propose_isr=changes.submit,
            broker_epoch=lambda: epoch,
            is_alive=lambda broker_id: broker_id in self.metadata.image.brokers,
            replica_lag_time_max_ms=LAG_MS,
        )
        self.replica_manager = self._replica_manager(host, fetchers)
        self.replica_control = ReplicaControl(
            self.replica_manager, self.log_manager, self.metadata, lambda topic: self._cluster.log_config
        )
        self.supervisor.supervise(IsrChecks(self.replica_manager, self.metadata).run, "ISR")
        self.supervisor.repeat(self.replica_manager.checkpoint_high_watermarks, "high watermarks", 1.0)

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        """``BrokerChannel``, to the controller only."""
        assert isinstance(request, AlterPartitionRequest)
        self._cluster.controller.ask(self, request, on_response)

    def act(self, action: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something inside the member's process: what it leaves to be done later ends with it."""
        assert self.process is not None
        return self.process.context.run(action, *args, **kwargs)

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def crash(self, kind: CrashKind, rng: random.Random) -> None:
        assert self.process is not None
        if kind == "process":
            self._cluster.loop.journal.note(self.process.name, "kill")
        self.process.kill()
        self.process = None
        self.disk.crash(kind, rng)

    def partition(self, index: int = 0) -> Partition:
        partition = self.replica_manager.partition((TOPIC, index))
        assert partition is not None, f"broker {self.broker_id} has no replica"
        return partition

    def leading(self, index: int = 0) -> LeadingPartition:
        """The partition, which must be led."""
        leading = self.partition(index).leading
        assert leading is not None, f"broker {self.broker_id} does not lead"
        return leading

    def in_sync(self) -> frozenset[int]:
        """Return the ISR as this member knows it if it leads, else nothing."""
        leading = self.partition().leading
        return frozenset() if leading is None else leading.progress.in_sync.isr

    def log(self, index: int = 0) -> PartitionLog:
        """Also of a broker that is down: as it was then, which is how it will start again."""
        log = self.log_manager.get(TopicPartition(TOPIC, index))
        assert log is not None
        return log

    def has_log(self, index: int = 0) -> bool:
        return hasattr(self, "log_manager") and self.log_manager.get(TopicPartition(TOPIC, index)) is not None


class Controller:
    """Decides as ``oncelog.coordinator.controller`` does; it can be slow, and lose responses."""

    def __init__(self, cluster: "ReplicaCluster", rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.states: dict[int, State] = {}
        self.refusals: list[ErrorCode] = []
        self.delay: Callable[[], float] = lambda: 0.001
        self.loses_response: Callable[[], bool] = lambda: False
        self.loses_order: Callable[[], bool] = lambda: False
        """Orders are lost when a controller falls; the next one tells how things are then."""
        self._mail: dict[int, float] = {}

    # Orders

    def create(self, count: int, *, isr: Iterable[int] | None = None) -> None:
        members = list(self._cluster.members)
        for index in range(count):
            preferred = members[index % len(members)]
            self.states[index] = State(leader=preferred, isr=tuple(isr or members))
        self.tell(self.states)

    def elect(self, index: int, leader: int, *, isr: Iterable[int] | None = None) -> None:
        """A new epoch, also if the leader stays."""
        state = self.states[index]
        state.leader, state.leader_epoch, state.version = leader, state.leader_epoch + 1, state.version + 1
        if isr is not None:
            state.isr = tuple(isr)
        self.tell([index])

    def tell(self, indexes: Iterable[int], only: int | None = None) -> None:
        states = [self._reported(index) for index in indexes]
        for member in self._cluster.members.values():
            if member.is_up and only in (None, member.broker_id) and not self.loses_order():
                self._post(member, states)

    def _post(self, member: Member, states: list[LeaderAndIsrPartitionState]) -> None:
        """Letters to one broker arrive in order, and only while it lives the life that they are for."""
        loop, epoch = self._cluster.loop, member.epoch
        arrival = max(self._mail.get(member.broker_id, 0.0) + 1e-6, loop.time() + self.delay())
        self._mail[member.broker_id] = arrival
        live = [other for other in self._cluster.members.values() if other.is_up]

        def deliver() -> None:
            if member.is_up and member.epoch == epoch:
                member.act(_apply_orders, member, states, live)

        loop.call_at(arrival, deliver)

    def _reported(self, index: int) -> LeaderAndIsrPartitionState:
        state = self.states[index]
        return LeaderAndIsrPartitionState(
            topic_name=TOPIC,
            partition_index=index,
            controller_epoch=1,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.version,
            replicas=list(self._cluster.members),
        )

    # Who is up

    def lost(self, broker_id: int) -> None:
        """Move the leaderships of a broker that is gone, and remove it from each ISR that has other members."""
        for index, state in self.states.items():
            up = tuple(member for member in state.isr if self._cluster[member].is_up)
            if up and (broker_id in state.isr or state.leader == broker_id):
                self.elect(index, state.leader if state.leader in up else up[0], isr=up)
            elif state.leader == broker_id:
                self.elect(index, NO_LEADER)

    def returned(self, broker_id: int) -> None:
        """A broker is there again, maybe without anybody having noticed that it was gone."""
        for index, state in self.states.items():
            others = tuple(m for m in state.isr if m != broker_id and self._cluster[m].is_up)
            if broker_id in state.isr and others:
                self.elect(index, state.leader if state.leader in others else others[0], isr=others)
            elif broker_id in state.isr:
                self.elect(index, broker_id, isr=[broker_id])
            else:
                self.tell([index])

    # AlterPartition

    def ask(self, member: Member, request: AlterPartitionRequest, on_response: OnResponse) -> None:
        process, epoch, loop = member.process, member.epoch, self._cluster.loop

        def respond(response: AlterPartitionResponse | None) -> None:
            if member.process is process and process is not None:
                process.context.run(on_response, response)

        def decide() -> None:
            lost = self.loses_response()
            if lost and self._rng.random() < 0.5:
                loop.call_later(self.delay(), respond, None)
                return
            response = self._decide(request)
            loop.call_later(self.delay(), respond, None if lost else response)

        if epoch == request.broker_epoch:
            loop.call_later(self.delay(), decide)

    def _decide(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self._cluster[request.broker_id].epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = []
        for topic in request.topics:
            altered = [self._alter(request.broker_id, proposal) for proposal in topic.partitions]
            topics.append(AlteredTopic(topic_id=topic.topic_id, partitions=altered))
        return AlterPartitionResponse(topics=topics)

    def _alter(self, asker: int, proposal: AlterPartitionData) -> AlteredPartition:
        state = self.states[proposal.partition_index]
        isr = tuple(broker.broker_id for broker in proposal.new_isr_with_epochs)
        error = ErrorCode.NONE
        if proposal.leader_epoch != state.leader_epoch or asker != state.leader:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif isr == state.isr:
            pass
        elif proposal.partition_epoch != state.version:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            not self._is_eligible(broker.broker_id, broker.broker_epoch) for broker in proposal.new_isr_with_epochs
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            state.isr, state.version = isr, state.version + 1
        if error:
            self.refusals.append(error)
            return AlteredPartition(partition_index=proposal.partition_index, error_code=error)
        return AlteredPartition(
            partition_index=proposal.partition_index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.version,
        )

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        member = self._cluster[broker_id]
        return member.is_up and broker_epoch in (-1, member.epoch)


def _apply_orders(member: Member, states: list[LeaderAndIsrPartitionState], live: list[Member]) -> None:
    member.replica_control.apply_leader_and_isr(
        LeaderAndIsrRequest(
            controller_epoch=1,
            topic_states=[LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)],
        )
    )
    member.metadata.apply_update_metadata(
        UpdateMetadataRequest(
            controller_epoch=1,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=TOPIC,
                    topic_id=TOPIC_ID,
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=state.partition_index,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=state.isr,
                            replicas=state.replicas,
                        )
                        for state in states
                    ],
                )
            ],
            live_brokers=[
                UpdateMetadataBroker(
                    id=other.broker_id,
                    rack=f"rack-{other.broker_id}",
                    endpoints=[UpdateMetadataEndpoint(host="127.0.0.1", port=other.port, listener=LISTENER)],
                )
                for other in live
            ],
        )
    )


@dataclass(slots=True)
class ReplicaCluster:
    """The members by id, and their controller."""

    loop: VirtualLoop
    rng: random.Random
    broker_ids: Sequence[int] = (1, 2, 3)
    log_config: LogConfig = field(default_factory=LogConfig)
    members: dict[int, Member] = field(init=False)
    controller: Controller = field(init=False)
    _broker_epoch: int = field(default=100, init=False)

    def __post_init__(self) -> None:
        self.members = {broker_id: Member(self, broker_id) for broker_id in self.broker_ids}
        self.controller = Controller(self, self.rng)

    def __getitem__(self, broker_id: int) -> Member:
        return self.members[broker_id]

    def next_broker_epoch(self) -> int:
        self._broker_epoch += 1
        return self._broker_epoch

    async def start(self, partitions: int = 1) -> None:
        for member in self.members.values():
            await member.start()
        self.controller.create(partitions)
        await asyncio.sleep(0.1)

    def kill(self) -> None:
        """End everything. Nothing reports what is collected afterwards."""
        self.loop.set_exception_handler(lambda loop, context: None)
        for member in self.members.values():
            if member.process is not None:
                member.process.kill()

    def leader(self, index: int = 0) -> Member:
        return self.members[self.controller.states[index].leader]

    def isolate(self, broker_id: int) -> None:
        """Nothing passes between a member and the others, but the controller reaches all."""
        for other in self.members:
            self.loop.network.sever(f"broker {broker_id}", f"broker {other}")
            self.loop.network.sever(f"broker {other}", f"broker {broker_id}")

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        """Wait in virtual time."""
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"in {seconds} s not: {what}"
            await asyncio.sleep(0.002)
