"""Requests to ZooKeeper that kazoo lacks, in bytes."""

import struct

from oncelog.coordinator.metadata_store.kazoo_encodings import MultiRead, decode_znode
from oncelog.coordinator.metadata_store.store import Znode

STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 7)
READ = struct.pack(">ibi", 4, 0, 0)
END = struct.pack(">ibi", -1, 1, -1)
NO_NODE = struct.pack(">ibii", -1, 0, -101, -101)


def test_znode_with_null_in_place_of_data_is_read_as_empty_beside_others() -> None:
    """Apache Kafka creates folders so."""
    null, text = struct.pack(">i", -1), struct.pack(">i", 4) + b"data"
    response = READ + null + STAT + NO_NODE + READ + text + STAT + END
    folder, missing, other = map(decode_znode, MultiRead.deserialize(response, 0))
    assert isinstance(folder, Znode)
    assert isinstance(other, Znode)
    assert (folder.data, missing, other.data) == (b"", None, b"data")
    assert folder.stat == other.stat
    assert (folder.stat.czxid, folder.stat.mzxid, folder.stat.version) == (1, 2, 5)
