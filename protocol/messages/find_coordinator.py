"""FindCoordinator (API key 10): versions 0-6, flexible from 3.

Which broker coordinates a group or a transactional id?

1: kind of key; throttle time and error message. 2: throttling moves to the client.
4: several keys in one request (KIP-699). 5: TRANSACTION_ABORTABLE may be returned. 6: share groups (KIP-932).
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array_of(string, "4+", default_factory=list)


class Coordinator(Message):
    key: str = string("4+", default="")
    node_id: int = int32("4+", default=0)
    host: str = string("4+", default="")
    port: int = int32("4+", default=0)
    error_code: int = int16("4+", default=0)
    error_message: str | None = string("4+", default="", nullable="4+")


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", default="", nullable="1-3")
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default_factory=list)
