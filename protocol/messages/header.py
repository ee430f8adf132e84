"""The headers in front of every request and response.

The client id is never compact, also where the header is flexible. ``oncelog.protocol.framing`` reads these without a
codec.
"""

from oncelog.protocol.schema import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: int = int16("0+", default=0)
    request_api_version: int = int16("0+", default=0)
    correlation_id: int = int32("0+", default=0)
    client_id: str | None = string("1+", default="", nullable="1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = int32("0+", default=0)
