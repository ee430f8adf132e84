"""SaslAuthenticate (API key 36): versions 0-2, flexible from 2.

Carries one token of a SASL exchange in each direction.

1: lifetime of the session, for clients that authenticate again before it ends (KIP-368).
"""

from oncelog.protocol.schema import Message, binary, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary("0+", default=b"")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    auth_bytes: bytes = binary("0+", default=b"")
    session_lifetime_ms: int = int64("1+", default=0)
