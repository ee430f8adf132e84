"""Where the responses of ``acl_cells.txt`` are meant to differ from Kafka's, each with its reason."""

from typing import Final, NamedTuple

from tests.conformance.acl_table import Cell


class Difference(NamedTuple):
    case: str
    kafka: str
    ours: str
    why: str


_IN_ORDER = "topics come in the order of the request; Kafka's come in that of a hash table, and cells-u before cells-t"
_NO_SHARE_GROUPS = "share groups are not served, so their coordinators are no key type"
_CREATED = "the topic is created before the response; Kafka's client has to ask again"
_REFUSED, _LEFT = "TOPIC_AUTHORIZATION_FAILED", "OPERATION_NOT_ATTEMPTED"
DIFFERENCES: Final = (
    Difference("add-partitions-v3", f"{_LEFT} {_REFUSED}", f"{_REFUSED} {_LEFT}", _IN_ORDER),
    Difference("add-partitions-v3", f"{_REFUSED} {_LEFT}", f"{_LEFT} {_REFUSED}", _IN_ORDER),
    Difference("find-coordinator-share", "NONE", "INVALID_REQUEST", _NO_SHARE_GROUPS),
    Difference("metadata-auto-create-by-topic", "UNKNOWN_TOPIC_OR_PARTITION NONE", "NONE NONE NONE", _CREATED),
    Difference("metadata-auto-create-by-cluster", "UNKNOWN_TOPIC_OR_PARTITION NONE", "NONE NONE NONE", _CREATED),
)


def expected(cell: Cell) -> str:
    """Return what this broker is to respond."""
    different = (each.ours for each in DIFFERENCES if (each.case, each.kafka) == (cell.case, cell.response))
    return next(different, cell.response)
