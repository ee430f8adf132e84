"""The metadata store: what we ask of ZooKeeper, and of whatever stands in for it.

A tree of znodes with versions, ephemerals, sequences, watches and atomic multi-operations. Three stores keep this
contract and pass one suite: the embedded one (``local.py``), ZooKeeper, and the simulated one. The contract is as weak
as a ZooKeeper client really is, so that code that is right here is right everywhere:

* **Sessions are generations.** ``MetadataStore.session`` is the current one, or None while there is none. A session
  that ended stays ended: every operation on it raises ``SessionExpired``, so a controller that kept an old session can
  do nothing with it. Ephemeral znodes live as long as the session that made them.
* **A local deadline.** ``Session.is_live()`` turns false on its own some time after the last contact with the store,
  before the store could have given the session up. The holder of an ephemeral calls it before it acts.
* **A write may have happened although ``ConnectionLost`` was raised.** The caller reads again before it decides.
* **A read may be old.** It shows everything that this session has read or written before, but a write of another
  session it may not show yet: members of an ensemble follow their leader at some distance. A reader that must see
  such a write calls ``sync`` first.
* **A watch is a hint "read again".** It fires at most once for each time it was left (leaving the same one again for
  the same path changes nothing), possibly for no reason (a lost connection fires them all), and possibly after a newer
  read. It is called from the event loop, never from inside one of the caller's own calls.
* **Expected refusals are values** (``StoreError``): no such node, it exists, another version, children in the way.

Writes carry the version they expect, or ``ANY_VERSION``. ``multi`` does all of its operations or none. Bulk reads and
batches of multis are one call each, because a thousand single round trips would stall the caller's event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials

ANY_VERSION: Final = -1
NO_SESSION: Final = 0


class StoreError(Enum):
    """Why an operation was refused. Nothing was changed."""

    NO_NODE = "the znode, or the parent of the one to create, does not exist"
    NODE_EXISTS = "the znode exists already"
    BAD_VERSION = "the znode has another version"
    NOT_EMPTY = "the znode has children"
    NO_CHILDREN_FOR_EPHEMERALS = "an ephemeral znode cannot have children"


class StoreUnavailable(Exception):
    """The store did not carry out the request, or its response is not known."""


class ConnectionLost(StoreUnavailable):
    """The connection broke while the operation was under way: a write may or may not have happened."""


class StoreFull(StoreUnavailable):
    """The store has no room for the operation, which did not happen. The message names what is full, and the remedy."""


class NotPermitted(StoreUnavailable):
    """The store does not let this client do that. The message names the znode, and the remedy."""


class SessionExpired(StoreUnavailable):
    """The session is over. The operation did not happen, and nothing else will happen on this session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """A znode's bookkeeping. ``czxid`` and ``mzxid`` are the ids of the transactions that created and last set it."""

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int = NO_SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """A znode's data and bookkeeping, as one read saw them."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a znode. A sequential one gets a ten-digit counter of its parent appended to its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Replace a znode's data; its version goes up by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a znode that has no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Change nothing, but fail the multi unless the znode has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What one successful operation did: the path (complete, for a sequential create) and the znode's new stat.

    ``stat`` is None after a delete or a check."""

    path: str
    stat: Stat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiFailed:
    """No operation of the multi was done, because the one at ``index`` could not be."""

    index: int
    error: StoreError


Watch: TypeAlias = Callable[[], None]
MultiResult: TypeAlias = list[Done] | MultiFailed


class Session(Protocol):
    """One session with the store. All of its methods raise ``SessionExpired`` once it is over."""

    @property
    def generation(self) -> int:
        """Counts this client's sessions: a later one is larger."""

    @property
    def session_id(self) -> int:
        """The store's id, as found in ``Stat.ephemeral_owner``."""

    @property
    def last_contact(self) -> float:
        """The loop's time at which the last request was sent that has a response."""

    def is_live(self) -> bool:
        """Return whether the store certainly still holds this session's ephemerals."""

    async def sync(self) -> None:
        """Make reads that begin after this see every write that any session had done before it."""

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """Return the znode, or None. The watch fires when it is created, set or deleted."""

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return the znodes of ``paths``, in order. Each is consistent in itself; together they are no snapshot."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Return the names of the znode's children, sorted; the watch fires when they change or the znode is deleted.

        None, without a watch, if there is no such znode.
        """

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Done | StoreError:
        """Create a znode; the result has the complete path of a sequential one."""
        return await self._alone(Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Done | StoreError:
        """Replace a znode's data."""
        return await self._alone(SetData(path=path, data=data, version=version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> Done | StoreError:
        """Remove a znode that has no children."""
        return await self._alone(Delete(path=path, version=version))

    async def _alone(self, operation: Operation) -> Done | StoreError:
        """Do a multi of one operation."""
        result = await self.multi([operation])
        return result.error if isinstance(result, MultiFailed) else result[0]

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none."""

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Do several multis in order, each atomic in itself; a failed one does not prevent the next."""


class SessionEvent(Enum):
    """What befell a session."""

    STARTED = "a session of a new generation is usable"
    SUSPENDED = "the connection is lost; the session may go on"
    RESUMED = "the connection is back, in the same session"
    ENDED = "the session is over and its ephemerals are, or soon will be, gone"


SessionListener: TypeAlias = Callable[[SessionEvent, Session], None]


class MetadataStore(Protocol):
    """A client of the store, which holds at most one session at a time and replaces one that ended."""

    @property
    def session(self) -> Session | None:
        """The current session, or None while there is none."""

    @property
    def credentials(self) -> SessionCredentials | None:
        """What a later process needs to end the current session; None if there is none, or if it ends with us."""

    def add_session_listener(self, listener: SessionListener) -> None:
        """Hear of the session's events, on the event loop, in order."""

    async def close(self) -> None:
        """End the session in an orderly way: its ephemerals are gone when this returns."""


def session_of(store: MetadataStore) -> Session:
    """Return the present session. Raises ``SessionExpired`` if there is none."""
    session = store.session
    if session is None:
        raise SessionExpired("the session with the metadata store has ended")
    return session
