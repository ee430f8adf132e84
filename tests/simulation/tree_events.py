"""What a write to the metadata store means, in words: elections, ISR changes, controllers, topics."""

from collections.abc import Callable, Iterator
from typing import Final

from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Create, Delete, Operation, SetData, Znode
from oncelog.coordinator.metadata_store.znode_tree import Multi
from oncelog.coordinator.metadata_store.znodes import MalformedZnode, PartitionState, decode_partition_state

_STATE: Final = "/state"
_WRITES: Final = {Create: "create", SetData: "set", Delete: "delete"}


def describe(transaction: Multi, get: Callable[[str], Znode | None]) -> list[tuple[str, str]]:
    """Return (kind, detail) of each write of a transaction that is not yet applied; ``get`` reads the tree."""
    return [event for operation in transaction.operations for event in _events(operation, get)]


def _events(operation: Operation, get: Callable[[str], Znode | None]) -> Iterator[tuple[str, str]]:
    path = operation.path
    if isinstance(operation, SetData) and path.startswith(paths.TOPICS) and path.endswith(_STATE):
        yield _state_change(path, operation.data, get(path))
    elif path == paths.CONTROLLER and isinstance(operation, Create | Delete):
        yield "controller elected" if isinstance(operation, Create) else "controller resigns", str(operation)[:100]
    elif type(operation) in _WRITES:
        yield f"{_WRITES[type(operation)]} znode", path


def _state_change(path: str, data: bytes, znode: Znode | None) -> tuple[str, str]:
    partition = path.removeprefix(f"{paths.TOPICS}/").removesuffix(_STATE).replace("/partitions/", "-")
    try:
        before = None if znode is None else decode_partition_state(znode.data)
        after = decode_partition_state(data)
    except MalformedZnode:
        return "malformed state", partition
    detail = f"{partition}: leader {after.leader}, epoch {after.leader_epoch}, ISR {list(after.isr)}"
    return _kind(before, after), detail


def _kind(before: PartitionState | None, after: PartitionState) -> str:
    if before is None or before.leader != after.leader:
        return "leader elected" if after.leader >= 0 else "partition without leader"
    if set(after.isr) == set(before.isr):
        return "leader epoch raised"
    return "ISR shrinks" if len(after.isr) < len(before.isr) else "ISR expands"
