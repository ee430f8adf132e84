"""The parts of a broker, as its handlers and its metrics see them."""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.peers.auto_topics import AutoTopicCreation
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.security.authorizer import Authorizer
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.transactions.markers import MarkerWriter
from oncelog.broker.transactions.verification import TransactionVerifier
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.group.coordinator import GroupCoordinator
from oncelog.coordinator.metadata_store.session_health import SessionHealth
from oncelog.coordinator.ports import WallClock
from oncelog.coordinator.producer_ids import ProducerIds
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from oncelog.broker.peers.controller_link import ControllerLink


@dataclass(slots=True, kw_only=True, eq=False)
class Broker:
    """What handlers see of the broker that they serve."""

    config: BrokerConfig
    disk: Disk
    wall_clock: WallClock
    rng: random.Random
    broker_id: int
    cluster_id: str
    listeners: Listeners
    handlers: tuple[ApiHandler[Any], ...]
    metadata: MetadataCache
    features: FinalizedFeatureCache
    configs: ConfigRepository
    log_manager: LogManager
    replica_manager: ReplicaManager
    replica_control: ReplicaControl
    controller: Controller
    controller_apis: ControllerApis
    auto_topics: AutoTopicCreation
    producer_ids: ProducerIds
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    marker_writer: MarkerWriter
    authorizer: Authorizer
    acls: AclRepository | None
    """None if every client may do everything."""
    scram_users: ScramUsers
    tokens: TokenRepository | None
    """None if there are no delegation tokens."""
    quotas: ClientQuotas
    response_memory: ResponseMemory
    supervisor: Supervisor
    failure: asyncio.Future[str]
    """Done when the broker cannot go on, with the reason: the caller of ``start_broker`` stops it then."""
    metadata_received: asyncio.Future[None]
    """Done once this broker has received the cluster's metadata; from the start on if it is alone."""
    resources: AsyncExitStack
    sliced_work: SlicedWork = field(default_factory=SlicedWork)
    controller_link: "ControllerLink | None"
    """None if the broker is alone."""
    session_health: SessionHealth
    """Whether the metadata store responds."""

    async def stop(self) -> None:
        """Shut down cleanly."""
        await self.resources.aclose()
