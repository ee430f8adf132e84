"""Requests and values of the store in kazoo's encoding.

kazoo encodes an object that has ``type``, ``serialize`` and ``deserialize``. Two requests that it does not know are
defined here: a multi whose creates return their stats, and many reads in one request.
"""

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import EXCEPTIONS, InvalidACLError, KazooException, NoAuthError, NoNodeError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    multiheader_struct,
    stat_struct,
)
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions

from oncelog.coordinator.metadata_store.store import (
    Check,
    ConnectionLost,
    Create,
    Delete,
    NotPermitted,
    Operation,
    SetData,
    Stat,
    StoreUnavailable,
    Znode,
)
from oncelog.coordinator.metadata_store.znode_access import ZnodeAccess

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_ERROR: Final = -1
_ACLS: Final[dict[ZnodeAccess, list[ACL]]] = {
    ZnodeAccess.OPEN: OPEN_ACL_UNSAFE,
    ZnodeAccess.READABLE: CREATOR_ALL_ACL + READ_ACL_UNSAFE,
    ZnodeAccess.SECRET: CREATOR_ALL_ACL,
}
_WORLD: Final = "world"
_NOT_ALLOWED: Final = (
    "as it belongs to another user (NoAuth): all brokers need the same user of ZooKeeper, by "
    "oncelog.zookeeper.sasl.jaas.config or the certificate of zookeeper.ssl.keystore.location"
)
_UNKNOWN_USER: Final = (
    "for its user, as ZooKeeper knows of none (InvalidACL): with zookeeper.set.acl=true set "
    "oncelog.zookeeper.sasl.jaas.config, or have ZooKeeper require a certificate (ssl.clientAuth=need)"
)


class Multi:
    """A multi whose creates return their stats: kazoo's own encodes the older create."""

    type = Transaction.type

    def __init__(self, operations: list[Any]) -> None:
        self._operations = operations

    def serialize(self) -> bytearray:
        request = bytearray()
        for operation in self._operations:
            request += MultiHeader(operation.type, False, -1).serialize() + operation.serialize()
        request += multiheader_struct.pack(-1, True, -1)
        return request

    @classmethod
    def deserialize(cls, response: bytes, offset: int) -> list[Any]:
        """Return one result per operation: (path, stat) of a create, a stat of a set, True, or an exception."""
        header, offset = MultiHeader.deserialize(response, offset)
        results: list[Any] = []
        while not header.done:
            if header.type == Create2.type:
                path, stat = Create2.deserialize(response, offset)
                offset += int_struct.size + len(path.encode()) + stat_struct.size
                results.append((path, stat))
            elif header.type == SetDataRequest.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(response, offset)))
                offset += stat_struct.size
            elif header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(response, offset)[0]]())
                offset += int_struct.size
            else:
                results.append(True)
            header, offset = MultiHeader.deserialize(response, offset)
        return results


class MultiRead:
    """Many reads in one request (ZooKeeper 3.6 and later), which kazoo lacks: one read costs it a millisecond."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self._paths:
            request += MultiHeader(GetData.type, False, -1).serialize() + GetData(path, None).serialize()
        request += multiheader_struct.pack(-1, True, -1)
        return request

    @classmethod
    def deserialize(cls, response: bytes, offset: int) -> list[tuple[bytes, ZnodeStat] | KazooException]:
        """Return the data and stat of each path, or an exception."""
        header, offset = MultiHeader.deserialize(response, offset)
        results: list[tuple[bytes, ZnodeStat] | KazooException] = []
        while not header.done:
            if header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(response, offset)[0]]())
                offset += int_struct.size
            else:
                data, stat = GetData.deserialize(response, offset)
                data = data or b""  # Apache Kafka creates folders with null in place of data.
                offset += int_struct.size + len(data) + stat_struct.size
                results.append((data, stat))
            header, offset = MultiHeader.deserialize(response, offset)
        return results


def encode_operation(operation: Operation, path: str, access: ZnodeAccess = ZnodeAccess.OPEN) -> Any:
    """Return kazoo's form of an operation on ``path``, which includes the chroot; ``access``: to what it creates."""
    match operation:
        case Create(data=data, ephemeral=ephemeral, sequential=sequential):
            flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
            return Create2(path, data, _ACLS[access], flags)
        case SetData(data=data, version=version):
            return SetDataRequest(path, data, version)
        case Delete(version=version):
            return DeleteRequest(path, version)
        case Check(version=version):
            return CheckVersion(path, version)


def decode_stat(stat: ZnodeStat) -> Stat:
    """Return the fields of kazoo's stat that the store has."""
    return Stat(czxid=stat.czxid, mzxid=stat.mzxid, version=stat.version, ephemeral_owner=stat.ephemeralOwner)


def encode_access(access: ZnodeAccess) -> list[ACL]:
    """Return kazoo's form of an access control list."""
    return _ACLS[access]


def may_be_changed_by_all(acls: Sequence[ACL]) -> bool:
    """Return whether an access control list lets everybody do more than read."""
    return any(each.id.scheme == _WORLD and each.perms & ~Permissions.READ for each in acls)


def refusal(error: KazooException, path: str) -> StoreUnavailable:
    """Return what an error means that the store's contract has no value for."""
    if isinstance(error, NoAuthError):
        return NotPermitted(f"ZooKeeper does not let this broker use {path}, {_NOT_ALLOWED}")
    if isinstance(error, InvalidACLError):
        return NotPermitted(f"ZooKeeper does not let this broker create {path} {_UNKNOWN_USER}")
    return ConnectionLost(f"{type(error).__name__} {error}".strip())


def decode_znode(found: tuple[bytes, ZnodeStat] | KazooException, path: str) -> Znode | None:
    """Return one result of a ``MultiRead``, None if there is no such znode. Raises ``StoreUnavailable``."""
    if isinstance(found, NoNodeError):
        return None
    if isinstance(found, Exception):
        raise refusal(found, path)
    data, stat = found
    return Znode(data=data, stat=decode_stat(stat))
