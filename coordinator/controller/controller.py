"""A broker's controller: its place in the cluster, its part in elections, and its work while it is in office.

Every broker runs one; at any time one of them reigns. Over the embedded store there is one broker, so it always does:
the code is the same. All that a controller does happens in one task (``run``), one piece of work at a time:

* when a session of the metadata store begins: register the broker, read the dynamic configuration, stand for election;
* when the election is won: read the cluster and its topics' configurations, give every partition the leader that it
  needs, tell everything to all brokers, go on with deletions;
* when brokers come or go, or cannot be reached: elect leaders, tell those that are concerned;
* what leaders ask: change who is in sync; what a broker asks that is about to stop: lead its partitions elsewhere;
* what clients ask: create, delete and move topics, add partitions, elect leaders, finalise feature levels.

A broker whose connection broke, and that cannot be connected to again, is most likely gone, long before the metadata
store gives up its session: it becomes a suspect (``suspects``). In the same way a controller that cannot be reached is
replaced.

When the session ends, a write is refused because another controller was elected, or anything unforeseen happens, the
reign ends at once and with it whatever was known; the next one reads it all again (``rejoining``). A request that
waits for its response then gets NOT_CONTROLLER, although the change may have been made: as with any lost response, a
retry tells.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, TypeVar

from oncelog.coordinator.controller.alter_partition import alter_partition
from oncelog.coordinator.controller.api_error import NO_ERROR, TIMED_OUT, UNFINISHED, ApiError
from oncelog.coordinator.controller.broker_changes import follow_broker_changes
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.coordinator.controller.cluster_loading import load_cluster, watch_malformed
from oncelog.coordinator.controller.config_changes import ConfigResource, ConfigValidator, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, Overrides
from oncelog.coordinator.controller.controlled_shutdown import move_leaderships_away
from oncelog.coordinator.controller.controller_election import Defeat, Verdict, Victory, stand, take_over
from oncelog.coordinator.controller.controller_settings import ControllerSettings
from oncelog.coordinator.controller.deadline import LEAST_SECONDS, deadline, seconds_to
from oncelog.coordinator.controller.disk_report import DiskReport
from oncelog.coordinator.controller.event_queue import EventQueue
from oncelog.coordinator.controller.feature_changes import FeatureUpdate, ensure_features, update_features
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.controller.leader_elections import ElectionType, balance_leaders, elect_leaders
from oncelog.coordinator.controller.leadership import elect, tell, tell_all_metadata, tell_everything, tell_topics
from oncelog.coordinator.controller.membership import prepare, register
from oncelog.coordinator.controller.office import Office
from oncelog.coordinator.controller.reassignments import Targets
from oncelog.coordinator.controller.reign import ControllerMoved, Reign
from oncelog.coordinator.controller.rejoining import Rejoining, refusal_of
from oncelog.coordinator.controller.suspicion import SuspicionLimit
from oncelog.coordinator.controller.topic_changes import add_planned, collect, create_planned
from oncelog.coordinator.controller.topic_deletion import deletion_result, unknown_topic
from oncelog.coordinator.controller.topic_plan import (
    NewPartitions,
    NewTopic,
    TopicPlan,
    plan_partitions,
    plan_topics,
)
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import MetadataStore, Session, SessionEvent, StoreUnavailable
from oncelog.coordinator.metadata_store.znodes import (
    RegisteredEndpoint,
    ReplicaAssignment,
)
from oncelog.coordinator.ports import BrokerChannel, WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
T = TypeVar("T")

_EXPECTED: Final = frozenset(
    {ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE}
)
_DEFAULT_SECONDS: Final = 30.0
_UNCLEAN_KEY: Final = "unclean.leader.election.enable"


class Controller:
    """See the module. ``start``, then ``run`` in a task of the broker's; requests are answered from then on."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        store: MetadataStore,
        configs: ConfigRepository,
        features: FinalizedFeatureCache,
        validator: ConfigValidator,
        channel: BrokerChannel,
        wall_clock: WallClock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._store = store
        self._configs = configs
        self._features = features
        self._validator = validator
        self._channel = channel
        self._wall_clock = wall_clock
        self._rng = rng
        self._queue = EventQueue()
        self._office: Office | None = None
        self._suspicions = SuspicionLimit()
        self._balance: asyncio.TimerHandle | None = None
        self.disk_report = DiskReport(self.broker_id, store, self._queue)
        self._rejoining = Rejoining(self.broker_id, rng, partial(self._queue.hint, "join", self._join))
        self.controller_id = NO_CONTROLLER
        """Who reigns, as far as this broker knows."""
        self.broker_epoch = -1
        """The epoch of this broker's registration."""

    @property
    def broker_id(self) -> int:
        return self._settings.registration.broker_id

    @property
    def is_active(self) -> bool:
        return self._office is not None and self._office.reign.is_active

    def endpoint_of(self, broker_id: int) -> RegisteredEndpoint | None:
        """Where a broker listens for brokers, if this controller reigns and the broker is registered."""
        broker = None if self._office is None else self._office.reign.state.brokers.get(broker_id)
        endpoints = () if broker is None else broker.registration.endpoints
        wanted = self._settings.listener_name
        return next((endpoint for endpoint in endpoints if endpoint.listener == wanted), None)

    @property
    def registered_brokers(self) -> Collection[int]:
        """The brokers that are registered, if this controller reigns."""
        return () if self._office is None else self._office.reign.state.brokers.keys()

    async def start(self) -> None:
        """Join the cluster. On the embedded store this broker reigns, and leads its partitions, on return."""
        self._configs.add_listener(self._on_overrides)
        self._store.add_session_listener(self._on_session)
        await self._join()

    async def run(self) -> None:
        """Do the controller's work until cancelled."""
        try:
            await self._queue.run(self._on_failure)
        except Exception:
            self._queue.hint("join", self._join)  # For when this is run again.
            raise
        finally:
            self._resign()
            self._rejoining.cancel()

    # The session, and elections

    def _on_session(self, event: SessionEvent, session: Session) -> None:
        match event:
            case SessionEvent.STARTED:
                self._queue.forget_hints()  # To join is to look at everything.
                self._queue.hint("join", self._join)
            case SessionEvent.ENDED:
                self._resign()
            case SessionEvent.RESUMED:
                self._queue.hint("elect", self._elect)
            case SessionEvent.SUSPENDED:
                """The session itself says how long it may still be relied on."""

    async def _join(self) -> None:
        session = self._store.session
        if session is None:
            return
        await prepare(session)
        self.broker_epoch = await register(session, self._settings.registration, self._wall_clock())
        await self._configs.load(session, self._configs_changed)
        await self._features.refresh(session, self._features_changed)
        await self._elect()

    async def _elect(self) -> None:
        """Find out who reigns, or become it."""
        session = self._store.session
        if session is None or self.is_active:
            return
        verdict = await stand(session, self.broker_id, self._wall_clock(), self._controller_changed)
        await self._accept(session, verdict, ())

    async def _accept(self, session: Session, verdict: Verdict, suspects: Sequence[int]) -> None:
        match verdict:
            case Defeat(controller_id=controller_id):
                self.controller_id = controller_id
            case Victory() as victory:
                await self._begin_reign(session, victory, suspects)
        self._rejoining.joined()

    async def _begin_reign(self, session: Session, victory: Victory, suspects: Sequence[int]) -> None:
        self._resign()
        logger.info("Broker %d is the controller, epoch %d", self.broker_id, victory.epoch)
        reign = Reign(
            session=session,
            victory=victory,
            controller_id=self.broker_id,
            channel=self._channel,
            listener_name=self._settings.listener_name,
            on_response=self._on_response,
            on_caught_up=self._on_caught_up,
        )
        office = self._office = Office.of(reign, self._unclean_allowed, self._suspicions.steady_seconds)
        self.controller_id = self.broker_id
        reign.state.on_set_aside = self._malformed_changed
        # Topics may have been created without a notification, by a release that wrote none or by another tool.
        await self._configs.load(reign.session, self._configs_changed)
        await load_cluster(reign.session, reign.state, self._brokers_changed)
        reign.state.suspects.update(reign.state.brokers.keys() & set(suspects))
        await ensure_features(reign, self._features, self._settings.features, self._features_changed)
        # Brokers must know each other, and all partitions, before they are told what they lead: a coordinator takes a
        # partition that it does not know then for deleted.
        tell_all_metadata(reign, reign.state.brokers)
        elected = await elect(reign, reign.state.partitions(), self._unclean_allowed)
        await tell(reign, reign.state.partitions(), elected)
        await office.carry_on()
        await office.full_disks.read_reports(self._disks_reported)
        self._balance_later()

    def _resign(self) -> None:
        """Stop being the controller, if this is one."""
        if self._balance is not None:
            self._balance.cancel()
        if self._office is not None:
            self._office.end()
            self._office = None
            self.controller_id = NO_CONTROLLER

    def _on_failure(self, error: Exception) -> None:
        """A piece of work failed: nothing that is known can be relied on, so begin anew."""
        self._resign()
        self._rejoining.failed(error)

    # Hints of the store

    def _controller_changed(self) -> None:
        self._queue.hint("controller changed", self._follow_controller)

    async def _follow_controller(self) -> None:
        session = self._store.session
        if session is None:
            return
        controller = await session.get(paths.CONTROLLER, self._controller_changed)
        if controller is None or controller.stat.ephemeral_owner != session.session_id:
            self._resign()
            await self._elect()

    def _brokers_changed(self) -> None:
        self._queue.hint("brokers changed", self._follow_brokers)

    async def _follow_brokers(self) -> None:
        office = self._office
        if office is None:
            return
        changes = await follow_broker_changes(office.reign, self._brokers_changed, self._unclean_allowed)
        for broker_id in changes.stopped:
            self._suspicions.forget(broker_id)
        for broker_id in changes.started:
            office.reassignments.tell_again(broker_id)
        if changes.started:
            await office.carry_on()

    def _malformed_changed(self) -> None:
        self._queue.hint("malformed znodes changed", self._follow_malformed)

    async def _follow_malformed(self) -> None:
        """Begin anew, with a look at everything, when a znode that was set aside has changed."""
        office = self._office
        if office is None:
            return
        reign = office.reign
        if await watch_malformed(reign.session, reign.state, self._malformed_changed):
            logger.info("A malformed znode has changed: broker %d reads the cluster again", self.broker_id)
            self._resign()
            await self._elect()

    @property
    def malformed_znodes(self) -> Collection[str]:
        """The paths of znodes that this broker needs and cannot decode; more of them are known to the controller."""
        configs = {resource.path for resource in self._configs.unreadable}
        return configs if self._office is None else configs | self._office.reign.state.malformed.keys()

    def _configs_changed(self) -> None:
        self._queue.hint("configurations changed", self._follow_configs)

    async def _follow_configs(self) -> None:
        session = self._store.session
        if session is None:
            return
        before = set(self._configs.unreadable)
        await self._configs.refresh(session, self._configs_changed)
        mended = before - set(self._configs.unreadable)
        if mended and self._office is not None:
            tell_topics(self._office.reign, sorted(resource.name for resource in mended))

    def _features_changed(self) -> None:
        self._queue.hint("features changed", self._follow_features)

    async def _follow_features(self) -> None:
        session = self._store.session
        if session is not None:
            await self._features.refresh(session, self._features_changed)

    def _on_overrides(self, resource: ConfigResource, overrides: Overrides) -> None:
        """A topic that may be led by a replica out of sync from now on may have waited for that."""
        if resource.type is ResourceType.TOPIC and _UNCLEAN_KEY in overrides and self.is_active:
            self._queue.hint(f"elect leaders of {resource.name}", partial(self._elect_leaders_of, resource.name))

    async def _elect_leaders_of(self, topic: str) -> None:
        if self._office is not None and topic in self._office.reign.state.topics:
            reign = self._office.reign
            elected = await elect(reign, list(reign.state.partitions([topic])), self._unclean_allowed)
            await tell(reign, elected, elected)

    def _unclean_allowed(self, topic: str) -> bool:
        override = self._configs.topic_overrides(topic).get(_UNCLEAN_KEY)
        return self._settings.unclean_leader_election if override is None else override.strip().lower() == "true"

    # Brokers that cannot be reached

    def report_unreachable(self, broker_id: int) -> None:
        """A connection to a broker broke, and it cannot be connected to again."""
        self._queue.hint(f"suspect broker {broker_id}", partial(self._suspect, broker_id))

    async def _suspect(self, broker_id: int) -> None:
        now = asyncio.get_running_loop().time()
        if broker_id == self.broker_id:
            return
        if self._office is not None:
            self._office.suspects.still_unreachable(broker_id)
            if self._office.suspects.may_be_added(broker_id) and self._suspicions.allows(broker_id, now):
                self._suspicions.note(broker_id, now)
                await self._office.suspects.add(broker_id)
        elif broker_id == self.controller_id and self._suspicions.allows(broker_id, now):
            self._suspicions.note(broker_id, now)
            await self._take_over(broker_id)

    async def _take_over(self, controller_id: int) -> None:
        session = self._store.session
        if session is None:
            return
        logger.warning("The controller, broker %d, cannot be reached: standing for election", controller_id)
        changed = self._controller_changed
        verdict = await take_over(session, self.broker_id, controller_id, self._wall_clock(), changed)
        await self._accept(session, verdict, [controller_id])

    # Brokers whose disk is full

    def _disks_reported(self) -> None:
        self._queue.hint("disks reported", self._follow_disk_reports)

    async def _follow_disk_reports(self) -> None:
        if self._office is not None:
            await self._office.full_disks.read_reports(self._disks_reported)

    async def _follow_disk(self, broker_id: int) -> None:
        if self._office is not None:
            await self._office.full_disks.follow(broker_id)

    # Leadership that returns by itself

    def _balance_later(self) -> None:
        if self._settings.balance_seconds is not None:
            loop = asyncio.get_running_loop()
            self._balance = loop.call_later(self._settings.balance_seconds, self._balance_now)

    def _balance_now(self) -> None:
        self._queue.hint("balance leaders", self._balance_leaders)
        self._balance_later()

    async def _balance_leaders(self) -> None:
        if self._office is not None:
            await balance_leaders(self._office.reign, self._settings.tolerated_imbalance_percentage)

    # Answers of brokers

    def _on_response(self, broker_id: int, request: Message, response: Message) -> None:
        if self._office is not None:
            self._office.suspects.on_response(broker_id, response)
            if self._office.full_disks.is_news(broker_id, response):
                self._queue.hint(f"disk of broker {broker_id}", partial(self._follow_disk, broker_id))
        match response:
            case LeaderAndIsrResponse(error_code=0, topics=topics):
                errors = [error for topic in topics for error in topic.partition_errors if error.error_code]
                # Whoever is told something again already knows it; a full disk is followed elsewhere.
                if any(error.error_code not in _EXPECTED for error in errors):
                    logger.error("Broker %d did not take the leadership of some partitions: %s", broker_id, errors)
            case UpdateMetadataResponse(error_code=0):
                pass
            case _ if isinstance(request, StopReplicaRequest):
                self._on_stopped(broker_id, request, response)
            case _:
                logger.warning("Broker %d answered %s with %s", broker_id, type(request).__name__, response)

    def _on_stopped(self, broker_id: int, request: StopReplicaRequest, response: Message) -> None:
        if self._office is not None:
            self._office.reassignments.on_response(broker_id, request, response)
            if self._office.deletions.on_response(broker_id, request, response):
                self._queue.hint("finish deletions", self._office.deletions.finish_what_is_deleted)

    def _on_caught_up(self, broker_id: int) -> None:
        self._queue.hint(f"tell broker {broker_id} everything", partial(self._tell_everything, broker_id))

    async def _tell_everything(self, broker_id: int) -> None:
        office = self._office
        if office is None or broker_id not in office.reign.state.brokers:
            return
        await tell_everything(office.reign, [broker_id])
        office.reassignments.tell_again(broker_id)
        await office.carry_on()

    # What brokers ask

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change who is in sync, as leaders propose."""

        async def alter(office: Office) -> AlterPartitionResponse:
            altered = await alter_partition(office.reign, request)
            await office.reassignments.finish(altered.partitions)
            await office.full_disks.relieve(list(altered.partitions))
            return altered.response

        return await self._as_controller(alter, lambda error: AlterPartitionResponse(error_code=error.code))

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Lead the partitions of a broker that is about to stop elsewhere."""

        async def move(office: Office) -> ControlledShutdownResponse:
            return await move_leaderships_away(office.reign, request, self._unclean_allowed)

        response = await self._as_controller(move, lambda error: ControlledShutdownResponse(error_code=error.code))
        await self._told([True], deadline(0))  # The new leaders should know it before the old one is gone.
        return response

    # What clients ask

    async def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        election: ElectionType,
        *,
        timeout_seconds: float = _DEFAULT_SECONDS,
    ) -> dict[TopicPartition, ApiError] | ApiError:
        """Hold elections for these partitions, or for all; the error of each, or of the whole request."""

        async def elect_now(office: Office) -> dict[TopicPartition, ApiError] | ApiError:
            return await elect_leaders(office.reign, partitions, election)

        return await self._as_controller(elect_now, _itself, deadline(timeout_seconds))

    async def alter_reassignments(
        self, targets: Targets, *, may_resize: bool = True, timeout_seconds: float = _DEFAULT_SECONDS
    ) -> dict[TopicPartition, ApiError] | ApiError:
        """Begin, redirect or take back moves of partitions; the error of each, or of the whole request."""

        async def alter(office: Office) -> dict[TopicPartition, ApiError] | ApiError:
            return await office.reassignments.alter(targets, may_resize=may_resize)

        return await self._as_controller(alter, _itself, deadline(timeout_seconds))

    async def reassignments(
        self, *, timeout_seconds: float = _DEFAULT_SECONDS
    ) -> dict[TopicPartition, ReplicaAssignment] | ApiError:
        """The partitions that are being moved."""

        async def look(office: Office) -> dict[TopicPartition, ReplicaAssignment] | ApiError:
            return office.reassignments.under_way()

        return await self._as_controller(look, _itself, deadline(timeout_seconds))

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_seconds: float = _DEFAULT_SECONDS
    ) -> list[TopicPlan | ApiError]:
        """Create topics, or only check that they could be; what they are, or why not, in the order of the topics.

        REQUEST_TIMED_OUT: the topic was created, but not all brokers that answer know it in time, or it may be created
        yet, if that has begun and the metadata store does not answer.
        """
        until = deadline(timeout_seconds)

        async def create(office: Office) -> list[TopicPlan | ApiError]:
            planned = await collect(
                plan_topics(topics, office.reign.state, self._settings.defaults, self._validator, self._rng)
            )
            if validate_only:
                return planned
            return await create_planned(office.reign, planned, self._configs, self._unclean_allowed)

        def refuse(error: ApiError) -> list[TopicPlan | ApiError]:
            return [error for _ in topics]

        results = await self._as_controller(create, refuse, until)
        if validate_only or await self._told([isinstance(each, TopicPlan) for each in results], until):
            return results
        return [TIMED_OUT if isinstance(each, TopicPlan) else each for each in results]

    async def _told(self, changed: Sequence[bool], until: float) -> bool:
        """Wait until all brokers that answer know what has changed: a client may ask any of them next."""
        seconds = max(seconds_to(until), LEAST_SECONDS)
        return not any(changed) or self._office is None or await self._office.reign.tell_within(seconds)

    async def delete_topics(self, topics: Sequence[str], *, timeout_seconds: float) -> list[ApiError]:
        """Delete topics by name, and wait until nothing is left of them; REQUEST_TIMED_OUT: it may happen yet."""
        until = deadline(timeout_seconds)

        async def begin(office: Office) -> list[ApiError | asyncio.Future[bool]]:
            existing = [topic for topic in dict.fromkeys(topics) if topic in office.reign.state.topics]
            waiting = {topic: office.deletions.finished(topic) for topic in existing}
            await office.deletions.begin(
                [topic for topic in existing if topic not in office.reign.state.topics_to_delete]
            )
            return [waiting.get(topic, unknown_topic(topic)) for topic in topics]

        def refuse(error: ApiError) -> list[ApiError | asyncio.Future[bool]]:
            return [error for _ in topics]

        begun = await self._as_controller(begin, refuse, until)
        waiting = [entry for entry in begun if isinstance(entry, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, min(timeout_seconds, seconds_to(until))))
        return [deletion_result(entry) if isinstance(entry, asyncio.Future) else entry for entry in begun]

    async def create_partitions(
        self,
        requests: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _DEFAULT_SECONDS,
    ) -> list[ApiError]:
        """Add partitions to topics; the errors are in the order of the requests, which name different topics."""
        until = deadline(timeout_seconds)

        async def create(office: Office) -> list[ApiError]:
            planned = [plan_partitions(request, office.reign.state) for request in requests]
            if validate_only:
                return [plan if isinstance(plan, ApiError) else NO_ERROR for plan in planned]
            topics = [request.topic for request in requests]
            return await add_planned(office.reign, dict(zip(topics, planned, strict=True)), self._unclean_allowed)

        results = await self._as_controller(create, lambda error: [error for _ in requests], until)
        if validate_only or await self._told([each == NO_ERROR for each in results], until):
            return results
        return [TIMED_OUT if each == NO_ERROR else each for each in results]

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _DEFAULT_SECONDS,
    ) -> list[ApiError] | ApiError:
        """Finalise other levels of all these features, or of none.

        Returns the errors in the order of the updates, or that of the whole request.
        """

        async def update(office: Office) -> list[ApiError] | ApiError:
            reign, changed = office.reign, self._features_changed
            return await update_features(reign, self._features, updates, changed, validate_only=validate_only)

        return await self._as_controller(update, _itself, deadline(timeout_seconds))

    @property
    def refusal(self) -> ApiError:
        """Why this broker, which is not the controller, does nothing of the controller's work."""
        return self._rejoining.refusal

    async def _as_controller(
        self, work: Callable[[Office], Awaitable[T]], refuse: Callable[[ApiError], T], until: float | None = None
    ) -> T:
        """Run a piece of work while in office; ``refuse`` shapes the response of a broker that is not, any more.

        At the time ``until`` of the loop it is refused with REQUEST_TIMED_OUT: if it has begun, it goes on.
        """

        async def in_office() -> T:
            return refuse(self.refusal) if self._office is None else await work(self._office)

        if not self.is_active:
            return refuse(self.refusal)
        try:
            return await self._queue.request(in_office, until)
        except (ControllerMoved, StoreUnavailable) as error:
            return refuse(refusal_of(error))
        except TimeoutError:
            return refuse(UNFINISHED)


def _itself(error: ApiError) -> ApiError:
    return error
