"""The dynamic configuration of topics, brokers, users and quotas: kept in the metadata store, known to every broker.

Each entity's overrides are one znode. A change also leaves a sequential znode below ``/config/changes``; all
brokers watch that, read the named entities again and tell their listeners. Changing a configuration needs no
controller: the write is conditional on the version that the change was decided on, and is decided anew if it lost a
race or its fate is unknown (every operation has the same effect twice as once).

A broker loads everything when its session begins, and a controller again when its epoch begins, so its notifications
are only those of later changes. The creation of a topic with overrides is a change like any other. Overrides of a topic
that is created here are learned at once, before the first of its logs is made; a broker that another controller orders
to make a log reads the topic's overrides before it does (``read_topics``), and asks the store for what is newest, since
the order may be faster than its own member of the ensemble. Reads and writes may end in any order, so
overrides are learned only if they were written later than those that are known. Old notifications are removed, the
oldest first; a broker that recognises none of many any more reads everything again.

A znode that cannot be decoded leaves its resource as it was and is logged; a topic that was never read successfully is
``is_unreadable``: no log is made for it, and its existing logs lose nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from oncelog.coordinator.controller.api_error import NO_ERROR, UNFINISHED, ApiError
from oncelog.coordinator.controller.cluster_image import MetadataChange
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigResource,
    ConfigValidator,
    ResourceType,
    altered,
    described_change,
    resource_at,
    why_malformed,
)
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Delete,
    MetadataStore,
    MultiFailed,
    Operation,
    Session,
    SetData,
    StoreFull,
    StoreUnavailable,
    Watch,
    Znode,
)
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Overrides: TypeAlias = Mapping[str, str]
ConfigListener: TypeAlias = Callable[[ConfigResource, Overrides], None]

NO_OVERRIDES: Final[Overrides] = MappingProxyType({})
_USERS: Final = "users/"
_PUBLIC: Final = frozenset({ResourceType.TOPIC, ResourceType.QUOTA})
"""Resources whose overrides may be logged."""
_ATTEMPTS: Final = 10
_ALTERATIONS_PER_TURN: Final = 50
_KEPT_CHANGES: Final = 500
_ALTERATION_SECONDS: Final = 10.0


class ConfigRepository:
    """One broker's view of all overrides, and the way to change them."""

    def __init__(self, store: MetadataStore, validator: ConfigValidator) -> None:
        self._store = store
        self._validator = validator
        self._known: dict[ConfigResource, tuple[int, Overrides]] = {}
        """Overrides, and the store's transaction that wrote them."""
        self._unreadable: dict[ConfigResource, int] = {}
        """Resources whose znode could not be decoded when it was last read, each with the transaction that wrote it."""
        self._listeners: list[ConfigListener] = []
        self._seen_changes: frozenset[str] = frozenset()
        self._doubtful: dict[ConfigResource, None] = {}
        """Topics whose overrides must be read again."""
        self._changed: Watch = _no_watch

    def topic_overrides(self, topic: str) -> Overrides:
        return self._overrides(ConfigResource(ResourceType.TOPIC, topic))

    def broker_overrides(self, broker_id: int) -> Overrides:
        """Return the overrides of one broker alone."""
        return self._overrides(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def cluster_overrides(self) -> Overrides:
        """Return the overrides that hold for every broker."""
        return self._overrides(ConfigResource(ResourceType.BROKER, ""))

    def overrides(self, resource: ConfigResource) -> Overrides:
        """Return the overrides of any resource."""
        return self._overrides(resource)

    def overridden(self, resource_type: ResourceType) -> list[str]:
        """Return the names of all resources of a type that have overrides."""
        return sorted(resource.name for resource in self.overridden_resources(resource_type))

    def overridden_resources(self, resource_type: ResourceType) -> list[ConfigResource]:
        """Return all resources of a type that have overrides."""
        known = self._known.items()
        return [resource for resource, (_, overrides) in known if resource.type is resource_type and overrides]

    def is_unreadable(self, topic: str) -> bool:
        """Return whether the topic's znode cannot be decoded and no earlier overrides of it are known."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return resource in self._unreadable and resource not in self._known

    @property
    def unreadable(self) -> Collection[ConfigResource]:
        """The resources whose znodes could not be decoded when they were last read."""
        return self._unreadable.keys()

    def _overrides(self, resource: ConfigResource) -> Overrides:
        known = self._known.get(resource)
        return NO_OVERRIDES if known is None else known[1]

    def add_listener(self, listener: ConfigListener) -> None:
        """Call ``listener`` with a resource and its new overrides whenever they change."""
        self._listeners.append(listener)

    def learn(self, resource: ConfigResource, overrides: Overrides, written_at: int) -> None:
        """Take overrides that the store's transaction ``written_at`` wrote, and notify listeners if they are newer."""
        known_at, before = self._known.get(resource, (-1, NO_OVERRIDES))
        if written_at <= known_at:
            return
        was_unreadable = resource in self._unreadable
        self._unreadable.pop(resource, None)
        self._known[resource] = written_at, MappingProxyType(dict(overrides))
        if overrides != before or was_unreadable:
            if known_at >= 0:
                is_public = resource.type in _PUBLIC
                what = described_change(before, overrides, shows_values=is_public)
                logger.info("Settings of %s changed: %s", resource.entity_path, what)
            for listener in self._listeners:
                listener(resource, overrides)

    def doubt_new_topics(self, change: MetadataChange) -> None:
        """Listen to the metadata cache: overrides that are known of a topic that appears may be a former topic's.

        Metadata and notifications come by different ways, so only another read shows which is newer."""
        appeared = [topic for topic in change.topics if _is_new(topic, change)]
        doubtful = {ConfigResource(ResourceType.TOPIC, topic) for topic in appeared} & self._known.keys()
        doubtful = {resource for resource in doubtful if self._overrides(resource)}
        if doubtful:
            self._doubtful.update(dict.fromkeys(sorted(doubtful, key=lambda resource: resource.name)))
            self._changed()

    async def load(self, session: Session, changed: Watch) -> None:
        """Read everything; ``changed`` is called when ``refresh`` has something to do."""
        self._changed = changed
        self._doubtful.clear()
        self._seen_changes = frozenset(await session.children(paths.CONFIG_CHANGES, changed) or ())
        resources = [*self._known, *self._unreadable, *await self._all_resources(session)]
        await self._read(session, list(dict.fromkeys(resources)))
        await self._watch_unreadable(session, changed)

    async def read_topics(self, topics: Iterable[str]) -> None:
        """Read the overrides of these topics now. Raises ``StoreUnavailable``."""
        session = self._store.session
        if session is None:
            raise StoreUnavailable("there is no session with the metadata store")
        await session.sync()
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        await self._read(session, resources)
        if not self._unreadable.keys().isdisjoint(resources):
            await self._watch_unreadable(session, self._changed)

    async def _all_resources(self, session: Session) -> list[ConfigResource]:
        entity_paths = []
        for folder in (
            paths.TOPIC_CONFIGS,
            paths.BROKER_CONFIGS,
            paths.CLIENT_METRICS_CONFIGS,
            paths.GROUP_CONFIGS,
            paths.USER_CONFIGS,
            paths.CLIENT_CONFIGS,
            paths.IP_CONFIGS,
        ):
            entity_paths += await _entities_in(session, folder)
        users = [path for path in entity_paths if path.startswith(_USERS)]
        folders = [f"{paths.CONFIG}/{user}/clients" for user in users]
        for folder, znode in zip(folders, await session.get_many(folders), strict=True):
            if znode is not None:
                entity_paths += await _entities_in(session, folder)
        return [resource for resource in map(resource_at, entity_paths) if resource is not None]

    async def refresh(self, session: Session, changed: Watch) -> None:
        """Read what changed since the last time."""
        if self._doubtful:
            await session.sync()
        names = await session.children(paths.CONFIG_CHANGES, changed) or []
        if len(names) >= _KEPT_CHANGES and self._seen_changes.isdisjoint(names):
            await self.load(session, changed)  # Changes that were not seen may have been removed.
            return
        news = [name for name in names if name not in self._seen_changes]
        changes = await session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in news])
        resources = dict.fromkeys(filter(None, (_changed_resource(change) for change in changes if change)))
        doubtful, self._doubtful = self._doubtful, {}
        await self._read(session, list(resources | doubtful | dict.fromkeys(self._unreadable)))
        await self._watch_unreadable(session, changed)
        self._seen_changes = frozenset(names)
        if len(names) >= 2 * _KEPT_CHANGES:
            oldest = names[:-_KEPT_CHANGES]
            await session.multi_many([[Delete(path=f"{paths.CONFIG_CHANGES}/{name}")] for name in oldest])

    async def _watch_unreadable(self, session: Session, changed: Watch) -> None:
        """Have malformed znodes read again when they change: the repair may leave no change notification."""
        for resource in list(self._unreadable):
            znode = await session.get(resource.path, changed)
            if znode is not None:
                self._learn_read(resource, znode)

    async def _read(self, session: Session, resources: Sequence[ConfigResource]) -> None:
        before = [self._known.get(resource) for resource in resources]
        found = await session.get_many([resource.path for resource in resources])
        for resource, known, znode in zip(resources, before, found, strict=True):
            if znode is not None:
                self._learn_read(resource, znode)
            elif self._known.get(resource) is known:  # Else it was learned meanwhile, from a znode that is newer.
                self._learn_absence(resource)

    def _learn_read(self, resource: ConfigResource, znode: Znode) -> None:
        try:
            overrides = znodes.decode_config(znode.data)
        except znodes.MalformedZnode as error:
            if self._unreadable.get(resource) != znode.stat.mzxid:
                logger.error("%s is malformed; what it said before still holds: %s", resource.path, error)
            self._unreadable[resource] = znode.stat.mzxid
        else:
            self.learn(resource, overrides, znode.stat.mzxid)

    def _learn_absence(self, resource: ConfigResource) -> None:
        """Note that there is no znode: the resource has no overrides (any more)."""
        self._unreadable.pop(resource, None)
        known = self._known.pop(resource, None)
        if known is not None and known[1]:
            logger.info("Settings of %s are gone", resource.entity_path)
            for listener in self._listeners:
                listener(resource, NO_OVERRIDES)

    async def alter(
        self,
        alterations: Sequence[ConfigAlteration],
        *,
        validate_only: bool = False,
        timeout_seconds: float = _ALTERATION_SECONDS,
    ) -> list[ApiError]:
        """Change configurations, each on its own; the errors are in the order of the alterations.

        REQUEST_TIMED_OUT after the time-out of them all, for those that are not done: the change that is under way then
        may be made yet, if it has reached the metadata store; later ones are abandoned.
        """
        until = asyncio.get_running_loop().time() + timeout_seconds
        errors: list[ApiError] = []
        for number, (alteration, malformed) in enumerate(zip(alterations, why_malformed(alterations), strict=True)):
            if number % _ALTERATIONS_PER_TURN == _ALTERATIONS_PER_TURN - 1:
                await asyncio.sleep(0)  # Where no override changes, nothing else yields to the loop.
            try:
                async with asyncio.timeout_at(until):
                    errors.append(malformed or await self._alter(alteration, validate_only=validate_only))
            except TimeoutError:
                errors.append(UNFINISHED)
        return errors

    async def _alter(self, alteration: ConfigAlteration, *, validate_only: bool) -> ApiError:
        for _ in range(_ATTEMPTS):
            session = self._store.session
            if session is None:
                break
            try:
                error = await self._try_to_alter(session, alteration, validate_only=validate_only)
            except ConnectionLost:
                continue
            except StoreFull as error:
                return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            except StoreUnavailable:
                break
            if error is not None:
                return error
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not take the change.")

    async def _try_to_alter(
        self, session: Session, alteration: ConfigAlteration, *, validate_only: bool
    ) -> ApiError | None:
        """Make one attempt; return None if another change was written first."""
        resource = alteration.resource
        znode = await session.get(resource.path)
        before = _overrides_before(alteration, znode)
        overrides = before if isinstance(before, ApiError) else altered(before, alteration, self._validator)
        if isinstance(overrides, ApiError):
            return overrides
        if not validate_only and not (znode is None and not overrides):
            folders = [] if znode is not None else await _missing(session, resource.parents)
            writes = [*folders, write_of(resource, overrides, znode), notification_of(resource)]
            result = await session.multi(writes)
            if isinstance(result, MultiFailed):
                return None
            written = result[len(folders)].stat
            assert written is not None, "a create or a set has a stat"
            self.learn(resource, overrides, written.mzxid)
        return NO_ERROR


async def _entities_in(session: Session, folder: str) -> list[str]:
    """Return the paths, below ``/config``, of the znodes in a folder."""
    kind = folder.removeprefix(f"{paths.CONFIG}/")
    return [f"{kind}/{name}" for name in await session.children(folder) or ()]


async def _missing(session: Session, folders: Sequence[str]) -> list[Operation]:
    """Return the operations that create the folders that there are not."""
    found = await session.get_many(folders) if folders else []
    return [Create(path=path) for path, znode in zip(folders, found, strict=True) if znode is None]


def _overrides_before(alteration: ConfigAlteration, znode: Znode | None) -> Overrides | ApiError:
    """Return the overrides that a change begins with. A malformed znode can only be replaced as a whole."""
    if znode is None:
        return NO_OVERRIDES
    try:
        return znodes.decode_config(znode.data)
    except znodes.MalformedZnode:
        if alteration.replaces_all:
            return NO_OVERRIDES
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"The znode {alteration.resource.path} is malformed, so what it should keep is unknown: replace the whole "
            "configuration (AlterConfigs), or mend the znode.",
        )


def write_of(resource: ConfigResource, overrides: Overrides, znode: Znode | None) -> Operation:
    """Return the operation that gives a resource these overrides, if its znode still is the one that was read."""
    data = znodes.encode_config(overrides)
    if znode is None:
        return Create(path=resource.path, data=data)
    return SetData(path=resource.path, data=data, version=znode.stat.version)


def notification_of(resource: ConfigResource) -> Operation:
    """Return the operation that notifies all brokers of a change."""
    data = znodes.encode_config_change(resource.entity_path)
    return Create(path=paths.CONFIG_CHANGE_PREFIX, data=data, sequential=True)


def _is_new(topic: str, change: MetadataChange) -> bool:
    """Return whether the change adds a topic that was unknown, or another one of the same name."""
    before, after = change.before.topic(topic), change.after.topic(topic)
    return after is not None and (before is None or before.topic_id != after.topic_id)


def _no_watch() -> None:
    """Do nothing: before the first load there is no watch."""


def _changed_resource(change: Znode) -> ConfigResource | None:
    try:
        return resource_at(znodes.decode_config_change(change.data))
    except znodes.MalformedZnode as error:
        logger.warning("Ignored a configuration change: %s", error)
        return None
