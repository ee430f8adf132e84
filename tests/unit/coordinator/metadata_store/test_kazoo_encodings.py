"""Requests to ZooKeeper that kazoo lacks, in bytes."""

import struct

import pytest
from kazoo.exceptions import InvalidACLError, NoAuthError
from kazoo.security import ACL, Id, Permissions

from oncelog.coordinator.metadata_store.kazoo_encodings import (
    MultiRead,
    decode_znode,
    encode_operation,
    may_be_changed_by_all,
    refusal,
)
from oncelog.coordinator.metadata_store.store import Create, NotPermitted, Znode
from oncelog.coordinator.metadata_store.znode_access import ZnodeAccess

STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 7)
READ = struct.pack(">ibi", 4, 0, 0)
END = struct.pack(">ibi", -1, 1, -1)
NO_NODE = struct.pack(">ibii", -1, 0, -101, -101)


def test_znode_with_null_in_place_of_data_is_read_as_empty_beside_others() -> None:
    """Apache Kafka creates folders so."""
    null, text = struct.pack(">i", -1), struct.pack(">i", 4) + b"data"
    response = READ + null + STAT + NO_NODE + READ + text + STAT + END
    folder, missing, other = (decode_znode(each, "/a") for each in MultiRead.deserialize(response, 0))
    assert isinstance(folder, Znode)
    assert isinstance(other, Znode)
    assert (folder.data, missing, other.data) == (b"", None, b"data")
    assert folder.stat == other.stat
    assert (folder.stat.czxid, folder.stat.mzxid, folder.stat.version) == (1, 2, 5)


WORLD = Id("world", "anyone")
CREATOR = Id("auth", "")


@pytest.mark.parametrize(
    ("access", "acls"),
    [
        (ZnodeAccess.OPEN, [ACL(Permissions.ALL, WORLD)]),
        (ZnodeAccess.READABLE, [ACL(Permissions.ALL, CREATOR), ACL(Permissions.READ, WORLD)]),
        (ZnodeAccess.SECRET, [ACL(Permissions.ALL, CREATOR)]),
    ],
)
def test_created_znode_has_the_list_of_its_access(access: ZnodeAccess, acls: list[ACL]) -> None:
    request = encode_operation(Create(path="/a"), "/chroot/a", access)
    assert (request.path, list(request.acl)) == ("/chroot/a", acls)


def test_list_that_lets_everybody_do_more_than_read_is_open() -> None:
    assert may_be_changed_by_all([ACL(Permissions.ALL, WORLD)])
    assert may_be_changed_by_all([ACL(Permissions.ALL, Id("sasl", "kafka")), ACL(Permissions.DELETE, WORLD)])
    assert not may_be_changed_by_all([ACL(Permissions.ALL, Id("sasl", "kafka")), ACL(Permissions.READ, WORLD)])


def test_refusal_of_access_names_the_znode_and_the_setting() -> None:
    for error in (NoAuthError(), InvalidACLError()):
        refused = refusal(error, "/config/users")
        assert isinstance(refused, NotPermitted)
        assert "/config/users" in str(refused)
        assert "oncelog.zookeeper.sasl.jaas.config" in str(refused)


def test_znode_that_may_not_be_read_is_no_missing_one() -> None:
    forbidden = struct.pack(">ibii", -1, 0, -102, -102)
    (found,) = MultiRead.deserialize(forbidden + END, 0)
    with pytest.raises(NotPermitted, match="/config/users"):
        decode_znode(found, "/config/users")
