"""``Controller``: a broker's place in the cluster, and its part in the election of the controller.

Every broker runs one; at any time at most one of them is active. Over the embedded store there is one broker, which is
the controller: the code is the same. All work runs in one task (``run``), one piece at a time (``event_queue``):

* when a session of the metadata store begins: register the broker, read the dynamic configurations, stand for election;
* when the election is won: do the work of the active controller (``active_controller``) until the epoch ends;
* when a broker, or the controller, cannot be reached: elect other leaders, or stand for election in its place. A broken
  connection that cannot be set up again is noticed long before the metadata store expires the session.

The requests of brokers and clients come in through ``controller_apis``.

When the session ends, a write is refused because another controller was elected, or an unforeseen error occurs, the
controller resigns and drops what it knew; the next epoch reads it all again (``rejoining``). A request that is under
way then gets NOT_CONTROLLER although the change may have been made: as after any lost response, a retry shows.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial

from oncelog.coordinator.controller.active_controller import ActiveController
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, Overrides
from oncelog.coordinator.controller.controller_context import ControllerMoved
from oncelog.coordinator.controller.controller_election import (
    Elected,
    ElectionResult,
    OtherElected,
    replace_controller,
    stand_for_election,
)
from oncelog.coordinator.controller.controller_settings import ControllerSettings
from oncelog.coordinator.controller.disk_report import DiskReport
from oncelog.coordinator.controller.event_queue import EventQueue
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.controller.membership import register
from oncelog.coordinator.controller.propagation import resend_topics
from oncelog.coordinator.controller.rejoining import Rejoining
from oncelog.coordinator.controller.stored_settings import StoredSettings
from oncelog.coordinator.controller.topic_ids import TopicIds
from oncelog.coordinator.controller.unclean_elections import UncleanElections
from oncelog.coordinator.controller.unreachable_backoff import UnreachableBackoff
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import MetadataStore, Session, SessionEvent
from oncelog.coordinator.metadata_store.znodes import RegisteredEndpoint
from oncelog.coordinator.ports import BrokerChannel, IntactLogs, UnknownLogs, WallClock

logger = logging.getLogger(__name__)


class Controller:
    """See the module. ``start`` it, then ``run`` it in a task, which also carries out the requests."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        store: MetadataStore,
        configs: ConfigRepository,
        features: FinalizedFeatureCache,
        channel: BrokerChannel,
        wall_clock: WallClock,
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self._store = store
        self._channel = channel
        self._wall_clock = wall_clock
        self.queue = EventQueue()
        """All work on the cluster; ``ControllerApis`` puts the requests into it."""
        self.stored = StoredSettings(store, configs, features, self.queue)
        self.active: ActiveController | None = None
        """The work of the controller's epoch; None if this broker is not the controller."""
        self._unreachable_backoff = UnreachableBackoff()
        self.disk_report = DiskReport(self.broker_id, store, self.queue)
        self.topic_ids = TopicIds(rng)
        self._rejoining = Rejoining(self.broker_id, rng, self._put_join)
        self.controller_id = NO_CONTROLLER
        """The controller, as far as this broker knows."""
        self.on_other_elected: Callable[[], None] = _ignore
        """Called when it is known which other broker is the controller; its metadata may have come before."""
        self.broker_epoch = -1
        """The epoch of this broker's registration."""
        self.unclean_elections = UncleanElections()
        self.logs: IntactLogs = UnknownLogs()
        """Since when this broker's logs have lost nothing."""

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self.settings.registration.broker_id

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self.active is not None and self.active.context.is_active

    def endpoint_of(self, broker_id: int) -> RegisteredEndpoint | None:
        """Return where a registered broker listens for brokers; None if unknown, or this is not the controller."""
        broker = None if self.active is None else self.active.context.state.brokers.get(broker_id)
        endpoints = () if broker is None else broker.registration.endpoints
        wanted = self.settings.listener_name
        return next((endpoint for endpoint in endpoints if endpoint.listener == wanted), None)

    @property
    def registered_brokers(self) -> Collection[int]:
        """The brokers that are registered; empty if this is not the controller."""
        return () if self.active is None else self.active.context.state.brokers.keys()

    @property
    def malformed_znodes(self) -> Collection[str]:
        """The paths of znodes that this broker needs and cannot decode; the controller needs more of them."""
        configs = set(self.stored.malformed_znodes)
        return configs if self.active is None else configs | self.active.context.state.malformed.keys()

    async def start(self) -> None:
        """Join the cluster. On return, a broker on the embedded store is the controller and leads its partitions."""
        self.stored.configs.add_listener(self._on_overrides)
        self.stored.on_mended = self._on_mended
        self._store.add_session_listener(self._on_session)
        try:
            await self._join()
        except ControllerMoved as error:  # Another broker was elected while this one began its epoch.
            self._on_failure(error)

    async def run(self) -> None:
        """Do the controller's work until cancelled."""
        try:
            await self.queue.run(self._on_failure)
        finally:
            self._resign()
            self._rejoining.cancel()
            self._put_join()  # If this is run again.

    # The session and elections

    def _on_session(self, event: SessionEvent, session: Session) -> None:
        match event:
            case SessionEvent.STARTED:
                self.queue.cluster.clear_events()  # To join is to read everything.
                self._put_join()
            case SessionEvent.ENDED:
                self._resign()
            case SessionEvent.RESUMED:
                self.queue.cluster.put("elect", self._elect)
            case SessionEvent.SUSPENDED:
                pass  # The session itself knows how long it may still be relied on (``Session.is_live``).

    def _put_join(self) -> None:
        self.queue.cluster.put("join", self._join)

    async def _join(self) -> None:
        session = self._store.session
        if session is None:
            return
        self.broker_epoch = await register(session, self.settings.registration, self._wall_clock(), self.logs)
        await self.logs.note_registration(self.broker_epoch)
        await self.stored.load(session)
        await self._elect()

    async def _elect(self) -> None:
        """Find out which broker is the controller, or become it."""
        session = self._store.session
        if session is None or self.is_active:
            return
        result = await stand_for_election(session, self.broker_id, self._wall_clock(), self._controller_changed)
        await self._accept(session, result, ())

    async def _accept(self, session: Session, result: ElectionResult, unreachable: Sequence[int]) -> None:
        match result:
            case OtherElected(controller_id=controller_id):
                self.controller_id = controller_id
                self.on_other_elected()
            case Elected() as elected:
                await self._begin_epoch(session, elected, unreachable)
        self._rejoining.joined()

    async def _begin_epoch(self, session: Session, elected: Elected, unreachable: Sequence[int]) -> None:
        self._resign()
        logger.info("Broker %d is the controller, epoch %d", self.broker_id, elected.epoch)
        active = self.active = ActiveController(
            session,
            elected,
            settings=self.settings,
            stored=self.stored,
            channel=self._channel,
            unreachable_backoff=self._unreachable_backoff,
            wall_clock=self._wall_clock,
        )
        active.context.state.on_unclean_election = self.unclean_elections.add
        self.controller_id = self.broker_id
        await active.begin(unreachable, self.topic_ids, self._restart)

    def _resign(self) -> None:
        """Stop being the controller, if this broker is it."""
        if self.active is not None:
            self.active.end()
            self.active = None
            self.controller_id = NO_CONTROLLER

    async def _restart(self) -> None:
        """Resign, and stand for election again: the next epoch reads the whole cluster."""
        self._resign()
        await self._elect()

    def _on_failure(self, error: BaseException) -> None:
        """Resign after an error: the state that decisions were made on cannot be relied on."""
        self._resign()
        self._rejoining.failed(error)

    def _controller_changed(self) -> None:
        self.queue.cluster.put("controller changed", self._reread_controller)

    async def _reread_controller(self) -> None:
        session = self._store.session
        if session is None:
            return
        controller = await session.get(paths.CONTROLLER, self._controller_changed)
        if controller is None or controller.stat.ephemeral_owner != session.session_id:
            await self._restart()

    # Changes of configurations

    def _on_overrides(self, resource: ConfigResource, overrides: Overrides) -> None:
        is_topic = resource.type is ResourceType.TOPIC
        if is_topic and self.active is not None:
            self.active.topic_settings_changed(resource.name)

    def _on_mended(self, topics: list[str]) -> None:
        if self.active is not None:
            resend_topics(self.active.context, topics)

    # Brokers that cannot be reached

    def report_unreachable(self, broker_id: int) -> None:
        """Replace a broker whose connection broke and cannot be set up again, as leader or as controller."""
        self.queue.cluster.put(f"broker {broker_id} unreachable", partial(self._replace, broker_id))

    async def _replace(self, broker_id: int) -> None:
        now = asyncio.get_running_loop().time()
        if broker_id == self.broker_id:
            return
        if self.active is not None:
            await self.active.unreachable.report(broker_id, now)
        elif broker_id == self.controller_id and self._unreachable_backoff.allows(broker_id, now):
            self._unreachable_backoff.note(broker_id, now)
            await self._replace_controller(broker_id)

    async def _replace_controller(self, controller_id: int) -> None:
        session = self._store.session
        if session is None:
            return
        logger.warning("The controller, broker %d, cannot be reached: standing for election", controller_id)
        now_ms, changed = self._wall_clock(), self._controller_changed
        result = await replace_controller(session, self.broker_id, controller_id, now_ms, changed)
        await self._accept(session, result, [controller_id])

    # Requests

    @property
    def refusal(self) -> ApiError:
        """Why this broker, which is not the controller, refuses the requests to one."""
        return self._rejoining.refusal


def _ignore() -> None:
    """Do nothing: no one else follows the controller."""
