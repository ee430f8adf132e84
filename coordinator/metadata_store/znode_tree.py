"""A tree of znodes in memory: ZooKeeper's data model, without disk, network, watches or time.

The tree changes only by ``apply(transaction)``: opening a session, closing one (its ephemerals go), or a multi. A
transaction either changes the tree completely and gets the next transaction id (zxid), or changes nothing. Applying
the same transactions to the same tree always gives the same tree, which is what lets a journal of them restore it.

Nodes are values: a change puts another node in the place of the former one. So a copy of the table of nodes is the tree
of that moment, whatever happens to the tree later, and a snapshot of it can be made in portions.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from oncelog.coordinator.metadata_store.store import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    Create,
    Delete,
    Done,
    MultiFailed,
    MultiResult,
    Operation,
    SetData,
    Stat,
    StoreError,
    Znode,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Multi:
    session_id: int
    operations: tuple[Operation, ...]


Transaction: TypeAlias = OpenSession | CloseSession | Multi


class _Node(NamedTuple):
    data: bytes
    czxid: int
    mzxid: int
    children: set[str]
    """Names; shared by all nodes that succeed each other at one path, and no part of a snapshot."""
    version: int = 0
    owner: int = NO_SESSION
    next_sequence: int = 0

    def stat(self) -> Stat:
        return Stat(czxid=self.czxid, mzxid=self.mzxid, version=self.version, ephemeral_owner=self.owner)


@dataclass(slots=True, kw_only=True)
class Changes:
    """The paths that a transaction touched, for the owner of the watches."""

    data: list[str] = field(default_factory=list)
    """Created, set or deleted."""
    children: list[str] = field(default_factory=list)
    """Whose children came or went, or which were deleted themselves."""


_Undo: TypeAlias = Callable[[], None]
_Step: TypeAlias = tuple[Done, _Undo]
Commit: TypeAlias = Callable[[int], None]
"""Makes a transaction, by its id, outlive the process; raises if that is not possible."""

ROOT: Final = "/"
_ROWS_PER_PART: Final = 500
"""Of a snapshot: a millisecond or two."""


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def _name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def _check_path(path: str) -> None:
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise ValueError(f"not the path of a znode: {path!r}")


def _commit_nothing(zxid: int) -> None:
    """Do nothing: the tree is kept in memory only."""


class ZnodeTree:
    """The znodes, the open sessions, and the id of the last transaction."""

    __slots__ = ("_nodes", "_sessions", "next_session_id", "zxid")

    def __init__(self) -> None:
        self._nodes = {ROOT: _Node(data=b"", czxid=0, mzxid=0, children=set())}
        self._sessions: dict[int, dict[str, None]] = {}
        """The ephemerals of each open session, in the order in which they were made."""
        self.zxid = 0
        self.next_session_id = 1

    def __len__(self) -> int:
        return len(self._nodes) - 1

    @property
    def session_ids(self) -> tuple[int, ...]:
        return tuple(self._sessions)

    def get(self, path: str) -> Znode | None:
        node = self._nodes.get(path)
        return None if node is None else Znode(data=node.data, stat=node.stat())

    def children(self, path: str) -> list[str] | None:
        node = self._nodes.get(path)
        return None if node is None else sorted(node.children)

    def apply(self, transaction: Transaction, changes: Changes, commit: Commit = _commit_nothing) -> MultiResult:
        """Do the transaction completely or not at all; ``changes`` collects what it touched if it was done.

        ``commit`` is called with its id when nothing can refuse it any more; what it raises undoes the transaction.
        """
        zxid = self.zxid + 1
        match transaction:
            case OpenSession(session_id=session_id):
                commit(zxid)
                self._sessions[session_id] = {}
                self.next_session_id = max(self.next_session_id, session_id + 1)
                result: MultiResult = []
            case CloseSession(session_id=session_id):
                ephemerals = tuple(reversed(self._sessions[session_id]))
                result = self._apply_all(session_id, [Delete(path=path) for path in ephemerals], zxid, changes, commit)
                assert isinstance(result, list), "an ephemeral znode has no children"
                del self._sessions[session_id]
            case Multi(session_id=session_id, operations=operations):
                result = self._apply_all(session_id, operations, zxid, changes, commit)
        if isinstance(result, list):
            self.zxid = zxid
        return result

    def _apply_all(
        self, session_id: int, operations: Sequence[Operation], zxid: int, changes: Changes, commit: Commit
    ) -> MultiResult:
        results: list[Done] = []
        undos: list[_Undo] = []
        try:
            for index, operation in enumerate(operations):
                step = self._step(session_id, operation, zxid)
                if isinstance(step, StoreError):
                    return MultiFailed(index=index, error=step)
                results.append(step[0])
                undos.append(step[1])
            commit(zxid)
            undos.clear()  # Nothing is undone from here on.
        finally:
            for undo in reversed(undos):
                undo()
        for operation, done in zip(operations, results, strict=True):
            _note(operation, done, changes)
        return results

    def _step(self, session_id: int, operation: Operation, zxid: int) -> _Step | StoreError:
        match operation:
            case Create():
                return self._create(session_id, operation, zxid)
            case SetData():
                return self._set(operation, zxid)
            case Delete():
                return self._delete(operation)
            case Check():
                node = self._at_version(operation.path, operation.version)
                return node if isinstance(node, StoreError) else (Done(path=operation.path, stat=None), _nothing)

    def _create(self, session_id: int, operation: Create, zxid: int) -> _Step | StoreError:
        _check_path(operation.path + "0" if operation.sequential else operation.path)
        parent_path = parent_of(operation.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            return StoreError.NO_NODE
        if parent.owner != NO_SESSION:
            return StoreError.NO_CHILDREN_FOR_EPHEMERALS
        path = f"{operation.path}{parent.next_sequence:010d}" if operation.sequential else operation.path
        if path in self._nodes:
            return StoreError.NODE_EXISTS
        owner = session_id if operation.ephemeral else NO_SESSION
        node = _Node(data=operation.data, czxid=zxid, mzxid=zxid, children=set(), owner=owner)
        self._link(path, node)
        self._nodes[parent_path] = parent._replace(next_sequence=parent.next_sequence + 1)

        def undo() -> None:
            self._nodes[parent_path] = parent
            self._unlink(path)

        return Done(path=path, stat=node.stat()), undo

    def _set(self, operation: SetData, zxid: int) -> _Step | StoreError:
        node = self._at_version(operation.path, operation.version)
        if isinstance(node, StoreError):
            return node
        changed = node._replace(data=operation.data, version=node.version + 1, mzxid=zxid)
        self._nodes[operation.path] = changed

        def undo() -> None:
            self._nodes[operation.path] = node

        return Done(path=operation.path, stat=changed.stat()), undo

    def _delete(self, operation: Delete) -> _Step | StoreError:
        path = operation.path
        _check_path(path)
        node = self._at_version(path, operation.version)
        if isinstance(node, StoreError):
            return node
        if node.children:
            return StoreError.NOT_EMPTY
        self._unlink(path)
        return Done(path=path, stat=None), lambda: self._link(path, node)

    def _at_version(self, path: str, version: int) -> _Node | StoreError:
        node = self._nodes.get(path)
        if node is None:
            return StoreError.NO_NODE
        return node if version in (ANY_VERSION, node.version) else StoreError.BAD_VERSION

    def _link(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(_name_of(path))
        if node.owner != NO_SESSION:
            self._sessions[node.owner][path] = None

    def _unlink(self, path: str) -> None:
        node = self._nodes.pop(path)
        self._nodes[parent_of(path)].children.remove(_name_of(path))
        if node.owner != NO_SESSION:
            del self._sessions[node.owner][path]

    def snapshot(self) -> Iterator[bytes]:
        """Yield the tree as it is now, in parts: one JSON document with a row per znode, parents before their children.

        The parts are made one by one; the tree may change meanwhile.
        """
        header = {"zxid": self.zxid, "next_session_id": self.next_session_id, "sessions": list(self._sessions)}
        return _encode(header, self._nodes.copy())

    @classmethod
    def restore(cls, snapshot: bytes) -> "ZnodeTree":
        content = json.loads(snapshot)
        tree = cls()
        tree.zxid, tree.next_session_id = content["zxid"], content["next_session_id"]
        tree._sessions = {session_id: {} for session_id in content["sessions"]}
        for path, data, czxid, mzxid, version, owner, next_sequence in content["znodes"]:
            node = _Node(
                data=data.encode("latin-1"),
                czxid=czxid,
                mzxid=mzxid,
                children=set(),
                version=version,
                owner=owner,
                next_sequence=next_sequence,
            )
            if path == ROOT:
                tree._nodes[ROOT] = node
            else:
                tree._link(path, node)
        return tree


def _encode(header: dict[str, Any], nodes: dict[str, _Node]) -> Iterator[bytes]:
    """Yield a snapshot in parts. A parent stands before its children in ``nodes``: it was there first."""
    rows = (
        [path, node.data.decode("latin-1"), node.czxid, node.mzxid, node.version, node.owner, node.next_sequence]
        for path, node in nodes.items()
    )
    yield _to_json(header)[:-1] + b',"znodes":['
    separator = b""
    while portion := list(islice(rows, _ROWS_PER_PART)):
        yield separator + _to_json(portion)[1:-1]
        separator = b","
    yield b"]}"


def _to_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _nothing() -> None:
    """Undo a check, which changed nothing."""


def _note(operation: Operation, done: Done, changes: Changes) -> None:
    if isinstance(operation, Check):
        return
    changes.data.append(done.path)
    if isinstance(operation, Create | Delete):
        changes.children.append(parent_of(done.path))
    if isinstance(operation, Delete):
        changes.children.append(done.path)
