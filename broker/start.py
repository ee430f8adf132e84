"""A broker: everything that it consists of, put together by one function that reads top to bottom.

``start_broker`` opens the data directory, joins the cluster, takes the leadership that the controller gives it, and
serves. On the embedded metadata store the broker is its own controller, by the code that a cluster uses; what a member
of a cluster has beside that is loaded only there. Nothing here knows which event loop, disk or clock it runs on.

What was started is stopped in the opposite order, also after half a start: the line after a part registers its end.
"""

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic_config import DynamicSettings
from oncelog.broker.config.listeners import Listeners, checked_listeners
from oncelog.broker.config.rules import ConfigRules
from oncelog.broker.config.topic_config import effective_overrides, log_config
from oncelog.broker.coordinators import Coordinators, make_coordinators
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.handlers import all_handlers
from oncelog.broker.metadata.identity import Identity, identify
from oncelog.broker.metadata.session_file import SessionFile
from oncelog.broker.metadata.store_choice import OpenStore, open_store
from oncelog.broker.network.heartbeats import Heartbeats
from oncelog.broker.network.sasl_guard import sasl_guards
from oncelog.broker.network.side_loop import SideLoop
from oncelog.broker.network.socket_server import SocketServer
from oncelog.broker.network.tls_listeners import TlsListeners
from oncelog.broker.part_settings import (
    controller_settings,
    log_manager_config,
    recovery_settings,
    verification_settings,
)
from oncelog.broker.parts import Broker
from oncelog.broker.peers.auto_topics import AutoTopicCreation
from oncelog.broker.peers.controller_client import ControllerClient
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.reconfiguration import change_intervals, reconfigure_logs, reconfigure_verifier, update_logs
from oncelog.broker.replication.fetch_session import FetchSessionCache
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_manager import ReplicaEvents, ReplicaManager
from oncelog.broker.security.access_control import open_access_control
from oncelog.broker.security.audit import open_audit
from oncelog.broker.security.oauth_listeners import OauthListeners
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.broker.storage.clean_shutdown import NO_BROKER_EPOCH
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.markers import MarkerWriter, longest_wait_ms
from oncelog.broker.transactions.verification import TransactionVerifier
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.group.coordinator import GroupCoordinator
from oncelog.coordinator.metadata_store.session_health import SessionHealth
from oncelog.coordinator.metadata_store.store import MetadataStore, session_of
from oncelog.coordinator.ports import BrokerChannel, CoordinatorHost, WallClock
from oncelog.coordinator.producer_ids import ProducerIds

if TYPE_CHECKING:
    from oncelog.broker.metrics.monitor import Monitor
    from oncelog.broker.peers.cluster_member import ClusterMember

logger = logging.getLogger(__name__)


async def start_broker(
    config: BrokerConfig,
    *,
    disk: Disk,
    wall_clock: WallClock,
    rng: random.Random,
    open_store: OpenStore = open_store,
    side_loop: SideLoop | None = None,
) -> Broker:
    """Start a broker; it serves when this returns.

    Raises ``ConfigError``, ``AlreadyLocked`` (another broker has the data directory), ``InvalidMetaProperties`` (the
    directory belongs to another broker or cluster), ``IncompatibleFeatures`` (the cluster uses what this broker does
    not support), ``StoreUnavailable`` (ZooKeeper cannot be reached), ``BrokerIdTaken``, ``EndpointTaken`` or
    ``OSError``. ``side_loop`` serves heartbeats while the running loop stands still; the caller closes it.
    """
    async with AsyncExitStack() as resources:
        broker = await _Start(config, disk, wall_clock, rng, resources, side_loop).run(open_store)
        broker.resources = resources.pop_all()
    return broker


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """The result of the first phase: the data directory with its logs, whose it is, and what they report to."""

    listeners: Listeners
    """As configured, without the ports that the system chooses."""
    broker_id: int
    cluster_id: str
    store: MetadataStore
    configs: ConfigRepository
    logs: LogManager
    member: "ClusterMember | None"
    """None if the broker is alone."""
    channel: BrokerChannel
    producer_ids: ProducerIds
    coordinators: Coordinators
    replicas: ReplicaManager
    control: ReplicaControl
    markers: MarkerWriter


class _Parts(NamedTuple):
    """The result of the second phase: the sockets, which are bound, and the controller, which is not started."""

    verifier: TransactionVerifier
    server: SocketServer
    listeners: Listeners
    """With the ports."""
    monitor: "Monitor | None"
    apis: ControllerApis


class _Start:
    """One start. The constructor makes the parts and ties them together; ``run`` starts them."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        wall_clock: WallClock,
        rng: random.Random,
        resources: AsyncExitStack,
        side_loop: SideLoop | None,
    ) -> None:
        self._heartbeats = None if side_loop is None else Heartbeats(side_loop)
        self._config = config
        self._disk = disk
        self._wall_clock = wall_clock
        self._rng = rng
        self._resources = resources
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._supervisor = Supervisor()
        self._metadata = MetadataCache()
        self._features = FinalizedFeatureCache()
        self._quotas = ClientQuotas(config)
        self._features.on_incompatible = self._fail
        self._running: Controller | None = None

    async def run(self, open_store: OpenStore) -> Broker:
        """Start the broker in three phases: open its data, make its other parts, join the cluster and serve."""
        data = await self._open(open_store)
        parts = await self._make_parts(data)
        return await self._join_and_serve(data, parts)

    async def _open(self, open_store: OpenStore) -> "_Data":
        """Lock the data directory, find out which broker this is, and load the logs."""
        listeners = checked_listeners(self._config)
        self._tls = TlsListeners(self._config, listeners)
        self._oauth = OauthListeners(self._config, listeners, self._wall_clock)
        await self._oauth.fetch_keys()
        logs = self._lock_data_dir()
        store, (broker_id, cluster_id) = await self._identify(logs, open_store)
        configs = self._open_configs(store)
        local = LocalChannel(broker_id, self._metadata, self._supervisor.spawn)
        member = self._cluster_member(broker_id, local)
        if member is not None:  # From here on the directory is ours: what follows writes to it.
            await member.await_free_id(session_of(store))
            settings = controller_settings(self._config, broker_id, listeners, self._features.supported)
            await member.check_endpoints(session_of(store), settings.registration)
        channel: BrokerChannel = local if member is None else member.channel
        producer_ids = ProducerIds(store, broker_id)
        markers = MarkerWriter(self._wall_clock, wait_ms=longest_wait_ms(self._config.request_timeout_ms))
        coordinators = self._coordinators(broker_id, channel, markers, producer_ids)
        replicas = self._replica_manager(broker_id, logs, coordinators, member)
        control = ReplicaControl(replicas, logs, self._metadata, self._new_log_config)
        markers.serve(replicas, coordinators.groups.on_txn_marker)
        local.serve(control)
        self._follow_changes(logs, coordinators.groups)
        await self._load(store, logs)
        self._stop_logs_last(logs, replicas, control)
        return _Data(
            listeners=listeners,
            broker_id=broker_id,
            cluster_id=cluster_id,
            store=store,
            configs=configs,
            logs=logs,
            member=member,
            channel=channel,
            producer_ids=producer_ids,
            coordinators=coordinators,
            replicas=replicas,
            control=control,
            markers=markers,
        )

    async def _make_parts(self, data: "_Data") -> "_Parts":
        """Make the parts that need loaded logs, and bind the sockets."""
        resources, supervisor = self._resources, self._supervisor
        verifier = self._transaction_verifier(data)
        resources.callback(verifier.stop)
        resources.push_async_callback(supervisor.stop)
        if data.member is not None:
            resources.callback(data.member.close)
        server = SocketServer(self._config, supervisor, self._heartbeats, self._quotas.connections)
        self._settings.follow(server.reconfigure)
        await self._tls.begin(supervisor, self._wall_clock, self._settings, self._access.logins)
        resources.push_async_callback(server.stop)
        resources.callback(data.coordinators.stop)
        ports = await server.bind(data.listeners.bound, data.listeners.inter_broker)
        listeners = data.listeners.with_ports(ports)
        monitor = await self._open_monitor()
        apis = self._controller(data, listeners)
        changed = partial(self._disk_changed, data.logs, apis.controller)
        data.logs.space.on_change = data.logs.space.files.on_change = changed
        data.control.unopened.on_opened = changed
        return _Parts(verifier=verifier, server=server, listeners=listeners, monitor=monitor, apis=apis)

    async def _join_and_serve(self, data: "_Data", parts: "_Parts") -> Broker:
        """Join the cluster, begin what goes on beside requests, and serve."""
        await self._join(data, parts.apis)
        self._begin_background(data, parts.apis.controller)
        member = data.member
        controller_client = ControllerClient(parts.apis, data.channel, self._config)
        broker = Broker(
            config=self._config,
            disk=self._disk,
            wall_clock=self._wall_clock,
            rng=self._rng,
            broker_id=data.broker_id,
            cluster_id=data.cluster_id,
            listeners=parts.listeners,
            handlers=all_handlers(clustered=not self._config.is_embedded),
            metadata=self._metadata,
            features=self._features,
            configs=data.configs,
            log_manager=data.logs,
            replica_manager=data.replicas,
            replica_control=data.control,
            controller=parts.apis.controller,
            controller_apis=parts.apis,
            auto_topics=AutoTopicCreation(self._config, controller_client, self._metadata, self._supervisor),
            producer_ids=data.producer_ids,
            group_coordinator=data.coordinators.groups,
            transaction_coordinator=data.coordinators.transactions,
            transaction_verifier=parts.verifier,
            marker_writer=data.markers,
            authorizer=self._access.authorizer,
            acls=self._access.acls,
            scram_users=ScramUsers(data.configs),
            tokens=self._access.tokens,
            quotas=self._quotas,
            response_memory=parts.server.response_memory,
            supervisor=self._supervisor,
            failure=self._failure,
            metadata_received=_done() if member is None else member.metadata_received,
            resources=self._resources,
            controller_link=None if member is None else member.controller_link,
            session_health=SessionHealth(data.store),
        )
        await self._serve(broker, parts.server, parts.monitor, member)
        return broker

    async def _serve(
        self, broker: Broker, server: SocketServer, monitor: "Monitor | None", member: "ClusterMember | None"
    ) -> None:
        self._resources.callback(server.stop_listening)
        dispatcher = Dispatcher(broker, broker.handlers, max_elements=self._config.oncelog_request_max_elements)
        brokers = self._access.watch(dispatcher, broker.listeners, self._metadata)
        self._quotas.is_brokers, self._quotas.may_act = brokers.sent, brokers.may_act
        self._quotas.measure(dispatcher, broker.sliced_work)
        if monitor is not None:
            monitor.show(broker, dispatcher, server, None if member is None else member.channel)
        self._oauth.begin(self._supervisor)
        await server.serve(dispatcher, sasl_guards(broker, self._oauth, self._access.logins), self._tls.by_name)
        if member is not None:
            self._resources.push_async_callback(member.leave)
            await member.until_metadata_received()

    # The data directory

    async def _identify(self, logs: LogManager, open_store: OpenStore) -> tuple[MetadataStore, Identity]:
        """Open the store, and find out which broker this is; the data directory must be that one's."""
        config = self._config
        if config.broker_id >= 0:
            logs.directory.check_owner(config.broker_id, None)
        store = await open_store(config, self._disk, self._resources, self._fail)
        identity = await identify(config, self._disk, session_of(store), self._rng)
        logs.directory.check_owner(*identity)
        self._broker_id = identity.broker_id
        return store, identity

    def _lock_data_dir(self) -> LogManager:
        logs = LogManager(
            self._disk,
            self._config.data_dir,
            log_config=self._log_config,
            wall_clock=self._wall_clock,
            rng=self._rng,
            config=log_manager_config(self._config),
        )
        logs.on_directory_failure = lambda error: self._fail(f"the data directory failed: {error}")
        logs.directory.lock()
        self._resources.callback(logs.release)
        return logs

    def _new_log_config(self, topic: str) -> LogConfig | None:
        """Return what a new log is run by; None if the topic's configuration cannot be read."""
        return None if self._configs.is_unreadable(topic) else self._log_config(topic)

    def _log_config(self, topic: str) -> LogConfig:
        """Return what an existing log is run by: nothing is removed while the topic's configuration cannot be read."""
        overrides = effective_overrides(topic, self._configs.topic_overrides(topic))
        config = log_config(self._settings.current, overrides)
        if self._configs.is_unreadable(topic):
            return replace(config, cleanup_policy=frozenset())
        return config

    def _open_configs(self, store: MetadataStore) -> ConfigRepository:
        rules = ConfigRules(self._config)
        self._configs = ConfigRepository(store, rules)
        self._configs.add_listener(self._quotas.learn)
        audit = open_audit(self._config, self._disk, self._wall_clock, self._resources, self._supervisor)
        self._access = open_access_control(self._config, store, self._supervisor, audit)
        self._settings = rules.settings = DynamicSettings(self._config, self._broker_id, self._configs)
        return self._configs

    def _follow_changes(self, logs: LogManager, groups: GroupCoordinator) -> None:
        self._settings.follow(partial(reconfigure_logs, logs))
        self._configs.add_listener(partial(update_logs, logs))
        self._metadata.add_listener(groups.on_metadata_change)
        self._metadata.add_listener(self._configs.doubt_new_topics)

    async def _load(self, store: MetadataStore, logs: LogManager) -> None:
        """Read what the cluster uses and the topics' settings, and then the logs."""
        await self._features.load(session_of(store))  # The controller reads all of this again, and then listens.
        await self._configs.load(session_of(store), lambda: None)
        logs.load()

    def _stop_logs_last(self, logs: LogManager, replicas: ReplicaManager, control: ReplicaControl) -> None:
        self._resources.callback(self._close_logs, logs)
        self._resources.push_async_callback(logs.settle)
        self._resources.push_async_callback(replicas.stop)
        self._resources.callback(control.stop)

    def _close_logs(self, logs: LogManager) -> None:
        logs.close(NO_BROKER_EPOCH if self._running is None else self._running.broker_epoch)

    # Other brokers

    def _cluster_member(self, broker_id: int, local: LocalChannel) -> "ClusterMember | None":
        """Return None if the broker is alone: what members of a cluster have is not even loaded then."""
        if self._config.is_embedded:
            return None
        from oncelog.broker.peers.cluster_member import ClusterMember

        return ClusterMember(
            self._config,
            broker_id,
            local=local,
            metadata=self._metadata,
            configs=self._configs,
            security=self._tls.peers,
            supervisor=self._supervisor,
        )

    async def _join(self, data: "_Data", apis: ControllerApis) -> None:
        self._running = apis.controller
        member = data.member
        if member is not None:  # Another broker may have taken the id while the logs were loaded.
            await member.await_free_id(session_of(data.store))
        # Claimed only now: a broker that is refused its id leaves the directory free for another id.
        data.logs.directory.claim(data.broker_id, data.cluster_id)
        SessionFile(self._disk, self._config.data_dir).keep(data.store)
        if member is not None:
            member.follow(apis, data.replicas, data.store)
        await apis.controller.start()

    # The parts

    async def _open_monitor(self) -> "Monitor | None":
        """Return None unless it is configured: its library is not even loaded then."""
        address = self._config.oncelog_http_listener
        if address is None:
            return None
        from oncelog.broker.metrics.monitor import Monitor

        monitor = Monitor(self._supervisor)
        self._resources.callback(monitor.stop)
        await monitor.listen(address)
        return monitor

    def _coordinators(
        self, broker_id: int, channel: BrokerChannel, markers: MarkerWriter, producer_ids: ProducerIds
    ) -> Coordinators:
        host = CoordinatorHost(
            broker_id=broker_id,
            metadata=self._metadata,
            channel=channel,
            markers=markers,
            tasks=self._supervisor,
            wall_clock=self._wall_clock,
        )
        return make_coordinators(self._config, host, self._rng, producer_ids=producer_ids, features=self._features)

    def _transaction_verifier(self, data: "_Data") -> TransactionVerifier:
        coordinators = TransactionCoordinators(
            data.coordinators.transactions,
            broker_id=data.broker_id,
            metadata=self._metadata,
            channel=data.channel,
            request_timeout_ms=self._config.request_timeout_ms,
        )
        verifier = TransactionVerifier(data.replicas, coordinators, verification_settings(self._config))
        self._settings.follow(partial(reconfigure_verifier, verifier))
        return verifier

    def _replica_manager(
        self, broker_id: int, logs: LogManager, coordinators: Coordinators, member: "ClusterMember | None"
    ) -> ReplicaManager:
        config, replication = self._config, None if member is None else member.replication
        return ReplicaManager(
            ReplicaHost(broker_id=broker_id, spawn=self._supervisor.spawn) if replication is None else replication.host,
            log_manager=logs,
            metadata=self._metadata,
            fetch_sessions=FetchSessionCache(slots=config.max_incremental_fetch_session_cache_slots, rng=self._rng),
            events=ReplicaEvents(
                on_elected=coordinators.on_elected,
                on_resigned=coordinators.on_resigned,
                on_storage_failure=lambda partition: self._fail(f"the log of {partition} failed"),
            ),
            fetchers=None if replication is None else replication.fetchers,
        )

    def _controller(self, data: "_Data", listeners: Listeners) -> ControllerApis:
        settings = controller_settings(self._config, data.broker_id, listeners, self._features.supported)
        controller = Controller(
            settings,
            store=data.store,
            configs=self._configs,
            features=self._features,
            channel=data.channel,
            wall_clock=self._wall_clock,
            rng=self._rng,
        )
        self._access.follow(controller)
        controller.logs = data.logs.directory.intact
        controller.topic_ids.known = data.replicas.known_topic_ids
        controller.topic_ids.without = data.replicas.topics_without_id
        self._settings.follow(lambda config: controller.stored.set_default_min_isr(config.min_insync_replicas))
        self._settings.follow(lambda config: controller.stored.set_recovery(recovery_settings(config)))
        return ControllerApis(controller, ConfigRules(self._config), self._rng)

    def _begin_background(self, data: "_Data", controller: Controller) -> None:
        """Start what goes on beside requests as long as the broker."""
        supervisor, interval_ms = self._supervisor, self._config.replica_high_watermark_checkpoint_interval_ms
        supervisor.supervise(controller.run, "controller")
        supervisor.supervise(data.producer_ids.run, "producer ids")
        checkpoint = data.replicas.checkpoint_high_watermarks
        supervisor.repeat(checkpoint, "high watermark checkpoint", interval_ms / 1000)
        maintenance = LogMaintenance(data.logs)
        intervals = {
            name: supervisor.repeat(act, name, every_ms / 1000) for name, every_ms, act in maintenance.background()
        }
        self._settings.follow(lambda config: change_intervals(maintenance, intervals))
        data.coordinators.start()
        self._access.begin(self._config, controller, supervisor, self._wall_clock)

    def _disk_changed(self, logs: LogManager, controller: Controller) -> None:
        """Report to the controller what can be written, unless this broker is alone and cannot write.

        Then no other broker can lead in its place, and there is no room to write the report.
        """
        if not (self._config.is_embedded and (logs.space.is_full or logs.space.files.refusing)):
            controller.disk_report.send()

    def _fail(self, reason: str) -> None:
        """End the broker: its data directory failed, say, or the cluster uses an unsupported feature level."""
        if not self._failure.done():
            logger.error("The broker cannot go on: %s", reason)
            self._failure.set_result(reason)


def _done() -> "asyncio.Future[None]":
    """Return a future that is done: a broker that is alone has its metadata at once."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
