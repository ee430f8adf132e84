"""Heartbeat (API key 12): versions 0-4, flexible from 4.

A member of a classic group is alive.

1: throttle time. 2: throttling moves to the client. 3: static members (KIP-345).
"""

from oncelog.protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = string("0+", default="")
    generation_id: int = int32("0+", default=0)
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0+", default=0)
