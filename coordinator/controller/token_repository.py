"""The delegation tokens: kept in the metadata store, known to every broker.

Each token has one znode, as in Kafka 3.9 (``token_znodes``). A change also leaves a sequential znode; all brokers watch
their folder, and read the named tokens again. Any broker makes changes: each write is conditional on the version of the
znode that it was decided on, and is decided anew if it lost a race or its fate is unknown. So a token that is renewed
at one broker is not removed by another that has seen it expire.

A broker reads everything when its session begins, so its notifications are only those of later changes. Reads and
writes may end in any order, so a token is learned only if it was written later than what is known; its removal counts
as written by the transaction that removed it. A znode that cannot be decoded is no token.

The secret of a token, its hmac, is computed here. It is neither stored nor logged.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from oncelog.coordinator.controller.delegation_tokens import Decision, remove_if_expired, token_hmac
from oncelog.coordinator.metadata_store import token_znodes
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
    session_of,
)
from oncelog.coordinator.metadata_store.znodes import MalformedZnode
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)
T = TypeVar("T")
Decide: TypeAlias = Callable[[TokenInformation], Decision]

_ATTEMPTS: Final = 10
_READ_AT_ONCE: Final = 500
"""Znodes that are requested together."""
_DECODED_AT_ONCE: Final = 10
"""Tokens that are decoded in one turn of the loop."""
_KEPT_CHANGES: Final = 500
_REMOVED_AT_ONCE: Final = 100
"""Change notifications that one refresh removes: it keeps other events waiting. The removal causes the next one."""


class _Known(NamedTuple):
    written_at: int
    """The store's transaction."""
    token: TokenInformation | None
    """None: it was removed then."""


class TokenRepository:
    """One broker's view of all delegation tokens, and the way to change them."""

    def __init__(self, store: MetadataStore, secret: bytes, *, max_count: int) -> None:
        """Know no token yet; ``secret`` is the same on all brokers, which create no more than ``max_count`` tokens."""
        self._store = store
        self._secret = secret
        self._max_count = max_count
        self._known: dict[str, _Known] = {}
        self._tokens: dict[str, TokenInformation] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        """By the digest of the hmac, so that no search compares secrets byte by byte."""
        self._seen: frozenset[str] = frozenset()
        """The change notifications that were read."""

    @property
    def tokens(self) -> Mapping[str, TokenInformation]:
        """All tokens by id, also those that have expired and are not removed yet."""
        return self._tokens

    def hmac_of(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return self._hmacs.get(token_id) or token_hmac(self._secret, token_id)

    def find(self, secret: bytes) -> str | None:
        """Return the id of the token with this hmac; None if there is none."""
        token_id = self._ids.get(hashlib.sha256(secret).digest())
        return token_id if token_id is not None and hmac.compare_digest(self._hmacs[token_id], secret) else None

    # Reading

    async def load(self, session: Session, changed: Watch) -> None:
        """Read everything; ``changed`` is called when ``refresh`` has something to do."""
        await _prepare(session)
        self._seen = frozenset(await session.children(token_znodes.CHANGES, changed) or ())
        stored = await session.children(token_znodes.TOKENS) or ()
        await self._read(list(dict.fromkeys([*self._known, *filter(token_znodes.is_token_id, stored)])), session)

    async def refresh(self, session: Session, changed: Watch) -> None:
        """Read what changed since the last time."""
        names = await session.children(token_znodes.CHANGES, changed) or []
        if len(names) >= _KEPT_CHANGES and self._seen.isdisjoint(names):
            await self.load(session, changed)  # Changes that were not seen may have been removed.
            return
        await self._read_announced(session, names)
        if len(names) >= 2 * _KEPT_CHANGES:
            oldest = names[: min(len(names) - _KEPT_CHANGES, _REMOVED_AT_ONCE)]
            await session.multi_many([[Delete(path=f"{token_znodes.CHANGES}/{name}")] for name in oldest])

    async def catch_up(self) -> None:
        """See every change that was made before this call. Raises ``StoreUnavailable``."""
        session = session_of(self._store)
        await session.sync()
        await self._read_announced(session, await session.children(token_znodes.CHANGES) or [])

    async def _read_announced(self, session: Session, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self._seen]
        found = await session.get_many([f"{token_znodes.CHANGES}/{name}" for name in new])
        ids = dict.fromkeys(_announced(znode) for znode in found if znode is not None)
        ids.pop(None, None)
        await self._read([token_id for token_id in ids if token_id is not None], session)
        self._seen = frozenset(names)  # Not before: a read that fails is to be repeated.

    async def _read(self, ids: Sequence[str], session: Session) -> None:
        for start in range(0, len(ids), _READ_AT_ONCE):
            await self._learn_stored(ids[start : start + _READ_AT_ONCE], session)

    async def _learn_stored(self, ids: Sequence[str], session: Session) -> None:
        before = [self._known.get(token_id) for token_id in ids]
        found = await session.get_many(list(map(token_znodes.token_path, ids)))
        for number, (token_id, known, znode) in enumerate(zip(ids, before, found, strict=True)):
            if number % _DECODED_AT_ONCE == _DECODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if znode is not None:
                self._learn(token_id, znode.stat.mzxid, _decoded(token_id, znode))
            elif self._known.get(token_id) is known:  # Else it was learned meanwhile, from a znode that is newer.
                self._known.pop(token_id, None)
                self._publish(token_id, None)

    def _learn(self, token_id: str, written_at: int, token: TokenInformation | None) -> None:
        known = self._known.get(token_id)
        if known is None or written_at > known.written_at:
            self._known[token_id] = _Known(written_at, token)
            self._publish(token_id, token)

    def _publish(self, token_id: str, token: TokenInformation | None) -> None:
        if token is not None:
            self._tokens[token_id] = token
            secret = self._hmacs[token_id] = token_hmac(self._secret, token_id)
            self._ids[hashlib.sha256(secret).digest()] = token_id
        elif self._tokens.pop(token_id, None) is not None:
            del self._ids[hashlib.sha256(self._hmacs.pop(token_id)).digest()]

    # Changing

    async def create(self, token: TokenInformation, *, timeout_seconds: float) -> ErrorCode:
        """Store a new token. POLICY_VIOLATION if there are too many, INVALID_REQUEST if it is too large."""
        if len(self._tokens) >= self._max_count:
            logger.warning("There are %d delegation tokens already: no more are created", len(self._tokens))
            return ErrorCode.POLICY_VIOLATION
        data = token_znodes.encode_token(token)
        if len(data) > token_znodes.LONGEST_ZNODE:
            return ErrorCode.INVALID_REQUEST
        path = token_znodes.token_path(token.token_id)
        operations = [Create(path=path, data=data), _announcement(token.token_id)]

        async def attempt(session: Session) -> ErrorCode | None:
            if await self._write(session, operations, token.token_id, token):
                return ErrorCode.NONE
            znode = await session.get(path)  # An attempt whose fate was unknown has created it.
            return ErrorCode.NONE if znode is not None and znode.data == data else None

        done = await self._try(attempt, timeout_seconds)
        if done is ErrorCode.NONE:
            logger.info("Delegation token %s is created for %s by %s", token.token_id, token.owner, token.requester)
        return done

    async def change(
        self, token_id: str, decide: Decide, *, timeout_seconds: float
    ) -> TokenInformation | ErrorCode | None:
        """Change a token as is decided from what is stored; return what it is then, None if it was removed."""
        may_be_removed = False

        async def attempt(session: Session) -> TokenInformation | ErrorCode | _Removed | None:
            nonlocal may_be_removed
            await session.sync()
            path = token_znodes.token_path(token_id)
            znode = await session.get(path)
            token = None if znode is None else _decoded(token_id, znode)
            if znode is None or token is None:
                return _REMOVED if may_be_removed else ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            self._learn(token_id, znode.stat.mzxid, token)
            decision = decide(token)
            if isinstance(decision, ErrorCode):
                return decision
            if decision == token:
                return token
            may_be_removed = may_be_removed or decision is None
            write = _write_of(decision, path, znode.stat.version)
            if not await self._write(session, [write, _announcement(token_id)], token_id, decision):
                return None
            return _REMOVED if decision is None else decision

        result: TokenInformation | ErrorCode | _Removed = await self._try(attempt, timeout_seconds)
        return None if isinstance(result, _Removed) else result

    async def remove_expired(self, now_ms: int, *, timeout_seconds: float) -> None:
        """Remove the tokens that have expired; end early if the store does not take a removal in time."""
        for token in [token for token in self._tokens.values() if token.is_expired(now_ms)]:
            removed = await self.change(
                token.token_id, lambda stored: remove_if_expired(stored, now_ms), timeout_seconds=timeout_seconds
            )
            if removed is None:
                logger.info("Delegation token %s of %s has expired and is removed", token.token_id, token.owner)
            elif removed is ErrorCode.REQUEST_TIMED_OUT:
                return

    async def _write(
        self, session: Session, operations: Sequence[Operation], token_id: str, token: TokenInformation | None
    ) -> bool:
        """Return whether it was done; if not, nothing was."""
        written = await session.multi(operations)
        if isinstance(written, MultiFailed):
            return False
        announcement = written[-1].stat
        assert announcement is not None, "a create has a stat"
        self._learn(token_id, announcement.czxid, token)
        return True

    async def _try(
        self, attempt: Callable[[Session], Awaitable[T | ErrorCode | None]], timeout_seconds: float
    ) -> T | ErrorCode:
        """Repeat an attempt that returns None or loses its connection. REQUEST_TIMED_OUT: it may be made yet."""
        try:
            async with asyncio.timeout(timeout_seconds):
                for _ in range(_ATTEMPTS):
                    try:
                        result = await attempt(session_of(self._store))
                    except ConnectionLost:
                        continue
                    if result is not None:
                        return result
        except StoreFull as error:
            logger.warning("A delegation token cannot be stored: %s", error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except (StoreUnavailable, TimeoutError):
            pass
        return ErrorCode.REQUEST_TIMED_OUT


class _Removed:
    """The result of a removal."""


_REMOVED: Final = _Removed()


def _announcement(token_id: str) -> Create:
    return Create(path=token_znodes.CHANGE_PREFIX, data=token_znodes.encode_change(token_id), sequential=True)


def _write_of(decision: TokenInformation | None, path: str, version: int) -> Operation:
    if decision is None:
        return Delete(path=path, version=version)
    return SetData(path=path, data=token_znodes.encode_token(decision), version=version)


async def _prepare(session: Session) -> None:
    """Create the folders that are missing."""
    existing = await session.get_many(token_znodes.PERSISTENT_PATHS)
    for path, znode in zip(token_znodes.PERSISTENT_PATHS, existing, strict=True):
        if znode is None:
            await session.create(path)  # Another broker may have created it meanwhile.


def _announced(znode: Znode) -> str | None:
    try:
        return token_znodes.decode_change(znode.data)
    except MalformedZnode as error:
        logger.warning("Ignored a change of delegation tokens: %s", error)
        return None


def _decoded(token_id: str, znode: Znode) -> TokenInformation | None:
    """Return None for a znode that is no token: no client can authenticate by it."""
    try:
        return token_znodes.decode_token(token_id, znode.data)
    except MalformedZnode as error:
        logger.error("%s is malformed: %s", token_znodes.token_path(token_id), error)
        return None
