"""The dynamic configuration of topics and brokers: kept in the metadata store, known to every broker.

Each entity's overrides are one znode. Whoever changes one also leaves a sequential znode below ``/config/changes``; all
brokers watch that, read the named entities again and tell their listeners. Changing a configuration needs no
controller: the write is conditional on the version that the change was decided on, and is decided anew if it lost a
race or its fate is unknown (every operation has the same effect twice as once).

A broker loads everything when its session begins, so its notifications are only those of later changes. Overrides of a
topic that is created here are learned at once, before the first of its logs is made. Reads and writes may end in any
order, so overrides are learned only if they were written later than those that are known. Old notifications are
removed, the oldest first; a broker that recognises none of many any more reads everything again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from coordinator.controller.api_error import NO_ERROR, ApiError
from coordinator.controller.cluster_image import MetadataChange
from coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigResource,
    ConfigValidator,
    ResourceType,
    altered,
    resource_at,
    why_malformed,
)
from coordinator.metadata_store import paths, znodes
from coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Delete,
    MetadataStore,
    MultiFailed,
    Operation,
    Session,
    SetData,
    StoreUnavailable,
    Watch,
    Znode,
)
from protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Overrides: TypeAlias = Mapping[str, str]
ConfigListener: TypeAlias = Callable[[ConfigResource, Overrides], None]

NO_OVERRIDES: Final[Overrides] = MappingProxyType({})
_ATTEMPTS: Final = 10
_KEPT_CHANGES: Final = 500


class ConfigRepository:
    """One broker's view of all overrides, and the way to change them."""

    def __init__(self, store: MetadataStore, validator: ConfigValidator) -> None:
        self._store = store
        self._validator = validator
        self._known: dict[ConfigResource, tuple[int, Overrides]] = {}
        """Overrides, and the store's transaction that wrote them."""
        self._listeners: list[ConfigListener] = []
        self._seen_changes: frozenset[str] = frozenset()

    def topic_overrides(self, topic: str) -> Overrides:
        return self._overrides(ConfigResource(ResourceType.TOPIC, topic))

    def broker_overrides(self, broker_id: int) -> Overrides:
        """Those of one broker alone."""
        return self._overrides(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def cluster_overrides(self) -> Overrides:
        """Those that hold for every broker."""
        return self._overrides(ConfigResource(ResourceType.BROKER, ""))

    def _overrides(self, resource: ConfigResource) -> Overrides:
        known = self._known.get(resource)
        return NO_OVERRIDES if known is None else known[1]

    def add_listener(self, listener: ConfigListener) -> None:
        """Call ``listener`` with a resource and its new overrides whenever they change."""
        self._listeners.append(listener)

    def learn(self, resource: ConfigResource, overrides: Overrides, written_at: int) -> None:
        """Take overrides that the store's transaction ``written_at`` wrote, and tell the listeners if that is news."""
        known_at, before = self._known.get(resource, (-1, NO_OVERRIDES))
        if written_at <= known_at:
            return
        self._known[resource] = written_at, MappingProxyType(dict(overrides))
        if overrides != before:
            for listener in self._listeners:
                listener(resource, overrides)

    def forget_deleted_topics(self, change: MetadataChange) -> None:
        """Listen to the metadata cache: what a deleted topic had overridden says nothing about a later one."""
        for topic in change.topics:
            if change.after.topic(topic) is None:
                self._known.pop(ConfigResource(ResourceType.TOPIC, topic), None)

    async def load(self, session: Session, changed: Watch) -> None:
        """Read everything; ``changed`` is called when ``refresh`` has something to do."""
        self._seen_changes = frozenset(await session.children(paths.CONFIG_CHANGES, changed) or ())
        await self._read(session, await self._all_resources(session))

    async def _all_resources(self, session: Session) -> list[ConfigResource]:
        topics = await session.children(paths.TOPIC_CONFIGS) or ()
        brokers = await session.children(paths.BROKER_CONFIGS) or ()
        entity_paths = [*(f"topics/{name}" for name in topics), *(f"brokers/{name}" for name in brokers)]
        return [resource for resource in map(resource_at, entity_paths) if resource is not None]

    async def refresh(self, session: Session, changed: Watch) -> None:
        """Read what changed since the last time."""
        names = await session.children(paths.CONFIG_CHANGES, changed) or []
        if len(names) >= _KEPT_CHANGES and self._seen_changes.isdisjoint(names):
            await self.load(session, changed)  # Changes that were not seen may have been removed.
            return
        news = [name for name in names if name not in self._seen_changes]
        changes = await session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in news])
        resources = dict.fromkeys(filter(None, (_changed_resource(change) for change in changes if change)))
        await self._read(session, list(resources))
        self._seen_changes = frozenset(names)
        if len(names) >= 2 * _KEPT_CHANGES:
            oldest = names[:-_KEPT_CHANGES]
            await session.multi_many([[Delete(path=f"{paths.CONFIG_CHANGES}/{name}")] for name in oldest])

    async def _read(self, session: Session, resources: Sequence[ConfigResource]) -> None:
        found = await session.get_many([resource.path for resource in resources])
        for resource, znode in zip(resources, found, strict=True):
            if znode is not None:
                self._learn_read(resource, znode)

    def _learn_read(self, resource: ConfigResource, znode: Znode) -> None:
        try:
            self.learn(resource, znodes.decode_config(znode.data), znode.stat.mzxid)
        except znodes.MalformedZnode as error:
            logger.error("The configuration of %s cannot be read: %s", resource.entity_path, error)

    async def alter(self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[ApiError]:
        """Change configurations, each on its own; the errors are in the order of the alterations."""
        malformed = why_malformed(alterations)
        return [
            error or await self._alter(alteration, validate_only=validate_only)
            for alteration, error in zip(alterations, malformed, strict=True)
        ]

    async def _alter(self, alteration: ConfigAlteration, *, validate_only: bool) -> ApiError:
        for _ in range(_ATTEMPTS):
            session = self._store.session
            if session is None:
                break
            try:
                error = await self._try_to_alter(session, alteration, validate_only=validate_only)
            except ConnectionLost:
                continue
            except StoreUnavailable:
                break
            if error is not None:
                return error
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not take the change.")

    async def _try_to_alter(
        self, session: Session, alteration: ConfigAlteration, *, validate_only: bool
    ) -> ApiError | None:
        """None if another change came between."""
        resource = alteration.resource
        znode = await session.get(resource.path)
        before = NO_OVERRIDES if znode is None else znodes.decode_config(znode.data)
        overrides = altered(before, alteration, self._validator)
        if isinstance(overrides, ApiError):
            return overrides
        if not validate_only:
            result = await session.multi([write_of(resource, overrides, znode), notification_of(resource)])
            if isinstance(result, MultiFailed):
                return None
            written = result[0].stat
            assert written is not None, "a create or a set has a stat"
            self.learn(resource, overrides, written.mzxid)
        return NO_ERROR


def write_of(resource: ConfigResource, overrides: Overrides, znode: Znode | None) -> Operation:
    """The operation that gives a resource these overrides, if its znode still is what was read."""
    data = znodes.encode_config(overrides)
    if znode is None:
        return Create(path=resource.path, data=data)
    return SetData(path=resource.path, data=data, version=znode.stat.version)


def notification_of(resource: ConfigResource) -> Operation:
    """The operation that tells all brokers of a change."""
    data = znodes.encode_config_change(resource.entity_path)
    return Create(path=paths.CONFIG_CHANGE_PREFIX, data=data, sequential=True)


def _changed_resource(change: Znode) -> ConfigResource | None:
    try:
        return resource_at(znodes.decode_config_change(change.data))
    except znodes.MalformedZnode as error:
        logger.warning("Ignored a configuration change: %s", error)
        return None
