"""How large a request may be, by its API: bytes that are received, and elements that are decoded.

``socket.request.max.bytes`` is the size of the largest produce, and few other requests have a reason to come near it.
The size of a frame and its API key are its first six bytes, so a frame that is too large for its API is refused before
it is received. What a request costs depends less on its bytes than on its elements: ten million empty names are ten
million objects and as many results. So the elements of all arrays of a request are counted while it is decoded, and
above the limit the connection ends with one line in the log.

Elements are bounded by ``oncelog.request.max.elements``, times a factor of the API. An element of most requests is
looked up, decided and put into the response by itself, in 10 to 20 µs; a request may take the time of ten thousand of
them. The factors are for requests whose elements cost less, or which grow with a cluster: a full fetch names all
partitions of a consumer or follower, and what the controller sends may name all partitions that there are. Brokers
split their requests to each other into parts that fit at the lowest setting; older brokers do not, and never retry in
smaller parts, so each request has room for 20,000 partitions, every one in a topic and a transaction of its own. A
commit of offsets has room for as many, administrators for 10,000 partitions with three replicas each, 10,000 resources
with one setting each, or 10,000 partitions of 1,000 topics to look at or to delete records of.

A request of an unauthenticated client must be small: Kafka has ``sasl.server.max.receive.size`` for
that, of the same default.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.protocol.api_keys import ApiKey

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


class RequestLimit(NamedTuple):
    """What a request of one API may be at most."""

    max_bytes: int = 16 * _MIB
    elements_factor: float = 1
    """Of ``oncelog.request.max.elements``."""


_DEFAULT: Final = RequestLimit()
_UNAUTHENTICATED: Final = RequestLimit(max_bytes=512 * _KIB, elements_factor=0.1)
_FROM_CONTROLLER: Final = RequestLimit(max_bytes=1 << 31, elements_factor=500)
_CHEAP_ELEMENTS: Final = RequestLimit(elements_factor=2)
_OF_MANY_PARTITIONS: Final = RequestLimit(elements_factor=5)
_OF_PARTITIONS_IN_TOPICS: Final = RequestLimit(elements_factor=1.1)
_OF_MANY_TRANSACTIONS: Final = RequestLimit(elements_factor=7)

_LIMITS: Final[Mapping[int, RequestLimit]] = {
    ApiKey.PRODUCE: RequestLimit(max_bytes=1 << 31),
    ApiKey.FETCH: _OF_MANY_PARTITIONS,
    ApiKey.METADATA: _CHEAP_ELEMENTS,
    ApiKey.LIST_OFFSETS: _CHEAP_ELEMENTS,
    ApiKey.OFFSET_COMMIT: _OF_MANY_PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _OF_MANY_PARTITIONS,
    ApiKey.OFFSET_FETCH: _CHEAP_ELEMENTS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _OF_MANY_PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN: _OF_MANY_TRANSACTIONS,
    ApiKey.WRITE_TXN_MARKERS: _OF_MANY_TRANSACTIONS,
    ApiKey.ALTER_PARTITION: RequestLimit(elements_factor=12),  # Older brokers send all changes in one request.
    ApiKey.CREATE_TOPICS: _OF_MANY_PARTITIONS,
    ApiKey.CREATE_PARTITIONS: _OF_MANY_PARTITIONS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _OF_MANY_PARTITIONS,
    ApiKey.DELETE_RECORDS: _OF_PARTITIONS_IN_TOPICS,
    ApiKey.DESCRIBE_PRODUCERS: _OF_PARTITIONS_IN_TOPICS,
    ApiKey.DESCRIBE_LOG_DIRS: _OF_PARTITIONS_IN_TOPICS,
    ApiKey.ELECT_LEADERS: _OF_PARTITIONS_IN_TOPICS,
    ApiKey.DESCRIBE_CONFIGS: _CHEAP_ELEMENTS,
    ApiKey.ALTER_CONFIGS: _CHEAP_ELEMENTS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CHEAP_ELEMENTS,
    ApiKey.CREATE_ACLS: _CHEAP_ELEMENTS,  # Of more than 10,000 each gets an error.
    ApiKey.DELETE_ACLS: _CHEAP_ELEMENTS,
    ApiKey.SASL_HANDSHAKE: _UNAUTHENTICATED,
    ApiKey.SASL_AUTHENTICATE: _UNAUTHENTICATED,
    ApiKey.API_VERSIONS: _UNAUTHENTICATED,
    ApiKey.LEADER_AND_ISR: _FROM_CONTROLLER,
    ApiKey.STOP_REPLICA: _FROM_CONTROLLER,
    ApiKey.UPDATE_METADATA: _FROM_CONTROLLER,
}


def is_of_controller(api_key: int) -> bool:
    """Return whether an API has the limits of a controller's requests, which are too high for a client's."""
    return limit_of(api_key) is _FROM_CONTROLLER


def limit_of(api_key: int) -> RequestLimit:
    """Return the limit of an API, known or not."""
    return _LIMITS.get(api_key, _DEFAULT)
