"""The access control lists: kept in the metadata store, known to every broker.

Each resource pattern has one znode with its entries, as in Kafka 3.9 (``acl_znodes``). A change also leaves a
sequential znode in one of two folders; all brokers watch these, and read the named patterns again. Any broker makes
changes: each write is conditional on the version of the znode that it was decided on, and is decided anew if it lost a
race or its fate is unknown. To add entries, or to remove them, has the same effect twice as once.

A broker reads everything when its session begins, so its notifications are only those of later changes. Reads and
writes may end in any order, so entries are learned only if they were written later than those that are known; the
removal of a znode counts as written by the transaction that removed it. What was read together is passed on together.

A znode that cannot be decoded leaves what its pattern had before. If that is not known, everything is denied to
everyone on the pattern's resources: the znode may deny something, and a guess would open what it protects. Only a
repair of the znode ends this; a change through a broker is refused.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

from oncelog.coordinator.controller.acl_changes import NO_ENTRIES, Acls, Addition, Change, Entries, why_too_large
from oncelog.coordinator.controller.api_error import NO_ERROR, UNFINISHED, ApiError
from oncelog.coordinator.metadata_store import acl_znodes
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
from oncelog.coordinator.metadata_store.znodes import MalformedZnode
from oncelog.protocol import acl
from oncelog.protocol.acl import EVERYONE, WILDCARD, AccessControlEntry, AclPermissionType, ResourcePattern
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)
T = TypeVar("T")

AclListener: TypeAlias = Callable[[Mapping[ResourcePattern, Entries]], None]

_EVERYTHING_DENIED: Final = frozenset(
    {AccessControlEntry(EVERYONE, WILDCARD, acl.AclOperation.ALL, AclPermissionType.DENY)}
)
_ATTEMPTS: Final = 10
_READ_AT_ONCE: Final = 500
"""Znodes that are requested together."""
_REMOVED_AT_ONCE: Final = 100
"""Change notifications that one refresh removes: it keeps other events waiting. The removal makes for the next one."""
_PATTERNS_AT_ONCE: Final = 50
"""Patterns that are decoded, or decided, in one turn of the loop."""
_KEPT_CHANGES: Final = 500
_CHANGE_SECONDS: Final = 10.0
_UNTAKEN: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not take the change.")


@dataclass(slots=True)
class PatternResult:
    """The result of a change of one pattern."""

    error: ApiError = UNFINISHED
    removed: Entries = NO_ENTRIES
    """Entries that the change removed, or may have removed."""


class _Known(NamedTuple):
    written_at: int
    """The store's transaction."""
    entries: Entries


class _Decision(NamedTuple):
    operations: Sequence[Operation]
    after: Entries
    removed: Entries


class _Announced(NamedTuple):
    """The notifications of a folder, and the patterns of new ones."""

    names: list[str]
    patterns: list[ResourcePattern]


@dataclass(slots=True)
class _Folder:
    """What has been seen of a folder of change notifications."""

    path: str
    seen: frozenset[str] = field(default_factory=frozenset)


class AclRepository:
    """One broker's view of all access control lists, and the way to change them."""

    def __init__(self, store: MetadataStore, listener: AclListener) -> None:
        """Call ``listener`` with the entries that patterns have from now on, none where they have no more.

        It is called after everything has been read, too, with what it has not been called with before, if anything.
        """
        self._store = store
        self._listener = listener
        self._known: dict[ResourcePattern, _Known] = {}
        self._acls: dict[ResourcePattern, Entries] = {}
        self._unreadable: dict[ResourcePattern, int] = {}
        """Patterns whose znode could not be decoded when it was last read, each with the transaction that wrote it."""
        self._folders = [_Folder(path) for path in acl_znodes.CHANGE_FOLDERS]

    @property
    def acls(self) -> Acls:
        """The entries of every pattern that has some."""
        return self._acls

    # Reading

    async def load(self, session: Session, changed: Watch) -> None:
        """Read everything; ``changed`` is called when ``refresh`` has something to do."""
        await _prepare(session)
        for folder in self._folders:
            folder.seen = frozenset(await session.children(folder.path, changed) or ())
        patterns = dict.fromkeys([*self._known, *self._unreadable])
        for path, (pattern_type, kind) in acl_znodes.PATTERN_FOLDERS.items():
            for name in await session.children(path) or ():
                patterns[ResourcePattern(kind, name, pattern_type)] = None
        await self._read(session, list(patterns))
        await self._watch_unreadable(session, changed)
        self._listener({})  # The lists are known now, also if there are none.

    async def refresh(self, session: Session, changed: Watch) -> None:
        """Read what changed since the last time."""
        announced = [await _announced(session, folder, changed) for folder in self._folders]
        for folder, (names, _) in zip(self._folders, announced, strict=True):
            if len(names) >= _KEPT_CHANGES and folder.seen.isdisjoint(names):
                await self.load(session, changed)  # Changes that were not seen may have been removed.
                return
        await self._read_announced(session, announced)
        await self._watch_unreadable(session, changed)
        for folder, (names, _) in zip(self._folders, announced, strict=True):
            if len(names) >= 2 * _KEPT_CHANGES:
                oldest = names[: min(len(names) - _KEPT_CHANGES, _REMOVED_AT_ONCE)]
                await session.multi_many([[Delete(path=f"{folder.path}/{name}")] for name in oldest])

    async def _read_announced(self, session: Session, announced: Sequence[_Announced]) -> None:
        patterns = dict.fromkeys(pattern for _, of_folder in announced for pattern in of_folder)
        await self._read(session, list(patterns | dict.fromkeys(self._unreadable)))
        for folder, (names, _) in zip(self._folders, announced, strict=True):
            folder.seen = frozenset(names)  # Not before: a read that fails is to be repeated.

    async def _watch_unreadable(self, session: Session, changed: Watch) -> None:
        """Have malformed znodes read again when they change: the repair may leave no change notification."""
        for pattern in list(self._unreadable):
            znode = await session.get(acl_znodes.pattern_path(pattern), changed)
            if znode is not None:
                self._learn_znode(pattern, znode)
                self._publish([pattern])

    async def _read(self, session: Session, patterns: Sequence[ResourcePattern]) -> None:
        for some in _slices(patterns, _READ_AT_ONCE):
            await self._learn_stored(session, some)
        self._publish(patterns)

    async def _learn_stored(self, session: Session, patterns: Sequence[ResourcePattern]) -> None:
        before = [self._known.get(pattern) for pattern in patterns]
        found = await session.get_many([acl_znodes.pattern_path(pattern) for pattern in patterns])
        for number, (pattern, known, znode) in enumerate(zip(patterns, before, found, strict=True)):
            if number % _PATTERNS_AT_ONCE == _PATTERNS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if znode is not None:
                self._learn_znode(pattern, znode)
            elif self._known.get(pattern) is known:  # Else it was learned meanwhile, from a znode that is newer.
                self._unreadable.pop(pattern, None)
                self._known.pop(pattern, None)

    def _learn_znode(self, pattern: ResourcePattern, znode: Znode) -> None:
        try:
            entries = acl_znodes.decode_entries(znode.data)
        except MalformedZnode as error:
            if self._unreadable.get(pattern) != znode.stat.mzxid:
                logger.error("%s is malformed: %s", acl_znodes.pattern_path(pattern), error)
            self._unreadable[pattern] = znode.stat.mzxid
        else:
            self._learn(pattern, znode.stat.mzxid, entries)

    def _learn(self, pattern: ResourcePattern, written_at: int, entries: Entries) -> None:
        known = self._known.get(pattern)
        if known is None or written_at > known.written_at:
            self._unreadable.pop(pattern, None)
            self._known[pattern] = _Known(written_at, entries)

    def _entries(self, pattern: ResourcePattern) -> Entries:
        """Return the entries by which to decide, as far as is known now."""
        known = self._known.get(pattern)
        if known is not None:
            return known.entries
        return _EVERYTHING_DENIED if pattern in self._unreadable else NO_ENTRIES

    def _publish(self, patterns: Iterable[ResourcePattern]) -> None:
        """Pass on, at once, what is new of some patterns."""
        news = {
            pattern: entries
            for pattern in patterns
            if (entries := self._entries(pattern)) != self._acls.get(pattern, NO_ENTRIES)
        }
        if not news:
            return
        acls = {**self._acls, **news}
        self._acls = {pattern: entries for pattern, entries in acls.items() if entries}
        (pattern, entries), more = next(iter(news.items())), len(news) - 1
        logger.info(
            "Access control lists: %d for the %s %s %s%s",
            len(entries),
            pattern.pattern_type.name,
            pattern.resource_type.name,
            pattern.name,
            f", and others for {more} more patterns" if more else "",
        )
        self._listener(news)

    # Changing

    async def catch_up(self) -> None:
        """See every change that was made before this call. Raises ``StoreUnavailable``."""
        session = self._store.session
        if session is None:
            raise StoreUnavailable("there is no session with the metadata store")
        await session.sync()
        await self._read_announced(session, [await _announced(session, folder, None) for folder in self._folders])

    async def change(
        self, changes: Mapping[ResourcePattern, Change], *, timeout_seconds: float = _CHANGE_SECONDS
    ) -> dict[ResourcePattern, PatternResult]:
        """Change patterns, each on its own.

        REQUEST_TIMED_OUT after the time-out of them all, for those that are not done: a change that is under way then
        may be made yet, if it has reached the metadata store; later ones are abandoned.
        """
        results = {pattern: PatternResult() for pattern in changes}
        try:
            async with asyncio.timeout(timeout_seconds):
                for some in _slices(list(changes), _PATTERNS_AT_ONCE):
                    await self._change({pattern: changes[pattern] for pattern in some}, results)
                    await asyncio.sleep(0)  # The store may have responded at once.
        except TimeoutError:
            pass  # Those that are not done have that error from the beginning.
        return results

    async def _change(
        self, changes: dict[ResourcePattern, Change], results: Mapping[ResourcePattern, PatternResult]
    ) -> None:
        for _ in range(_ATTEMPTS):
            session = self._store.session
            if session is None:
                break
            try:
                await self._try_to_change(session, changes, results)
            except ConnectionLost:
                continue
            except StoreFull as error:
                for pattern in changes:
                    results[pattern].error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                return
            except StoreUnavailable:
                break
            if not changes:
                return
        for pattern in changes:
            results[pattern].error = _UNTAKEN

    async def _try_to_change(
        self,
        session: Session,
        changes: dict[ResourcePattern, Change],
        results: Mapping[ResourcePattern, PatternResult],
    ) -> None:
        """Make one attempt, and take what is done out of ``changes``."""
        found = await session.get_many([acl_znodes.pattern_path(pattern) for pattern in changes])
        decisions: dict[ResourcePattern, _Decision] = {}
        for (pattern, change), znode in zip(list(changes.items()), found, strict=True):
            decision = _decide(pattern, change, znode)
            if isinstance(decision, ApiError):
                results[pattern].error = decision
                del changes[pattern]
            else:
                decisions[pattern] = decision
        if not decisions:
            return
        try:
            written = await session.multi_many([decision.operations for decision in decisions.values()])
        except ConnectionLost:
            for pattern, decision in decisions.items():  # They may be removed, and then no later attempt finds them.
                results[pattern].removed |= decision.removed
            raise
        for (pattern, decision), result in zip(decisions.items(), written, strict=True):
            if not isinstance(result, MultiFailed):
                announcement = result[-1].stat
                assert announcement is not None, "a create has a stat"
                self._learn(pattern, announcement.czxid, decision.after)
                results[pattern].removed |= decision.removed
                results[pattern].error = NO_ERROR
                del changes[pattern]
        self._publish(decisions)


def _decide(pattern: ResourcePattern, change: Change, znode: Znode | None) -> _Decision | ApiError:
    """Return what to write; the error may be NONE, if there is nothing to change."""
    path = acl_znodes.pattern_path(pattern)
    try:
        before = NO_ENTRIES if znode is None else acl_znodes.decode_entries(znode.data)
    except MalformedZnode:
        return ApiError(ErrorCode.INVALID_REQUEST, f"The znode {path} is malformed: mend it, or remove it.")
    after = change.applied(before)
    if after == before:
        return NO_ERROR
    too_large = why_too_large(after) if isinstance(change, Addition) else None
    if too_large is not None:
        return too_large
    write: Operation
    if znode is None:
        write = Create(path=path, data=acl_znodes.encode_entries(after))
    elif after:
        write = SetData(path=path, data=acl_znodes.encode_entries(after), version=znode.stat.version)
    else:
        write = Delete(path=path, version=znode.stat.version)
    announcement = Create(
        path=acl_znodes.change_prefix(pattern), data=acl_znodes.encode_change(pattern), sequential=True
    )
    return _Decision([write, announcement], after, before - after)


async def _prepare(session: Session) -> None:
    """Create the folders that are missing."""
    existing = await session.get_many(acl_znodes.PERSISTENT_PATHS)
    for path, znode in zip(acl_znodes.PERSISTENT_PATHS, existing, strict=True):
        if znode is None:
            await session.create(path)  # Another broker may have created it meanwhile.


async def _announced(session: Session, folder: _Folder, changed: Watch | None) -> _Announced:
    """Return the notifications of a folder, and the patterns of those that had not been seen."""
    names = await session.children(folder.path, changed) or []
    patterns = []
    found = await session.get_many([f"{folder.path}/{name}" for name in names if name not in folder.seen])
    for number, znode in enumerate(found):
        if number % _PATTERNS_AT_ONCE == _PATTERNS_AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            if znode is not None:
                patterns.append(acl_znodes.decode_change(folder.path, znode.data))
        except MalformedZnode as error:
            logger.warning("Ignored a change of access control lists: %s", error)
    return _Announced(names, patterns)


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
