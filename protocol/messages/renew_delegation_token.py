"""RenewDelegationToken (API key 39): versions 1-2, flexible from 2.

Sets a new time at which a delegation token expires (KIP-48).

1: throttling moves to the client.
"""

from oncelog.protocol.schema import Message, binary, int16, int32, int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes = binary("0+", default=b"")
    renew_period_ms: int = int64("0+", default=0)


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+", default=0)
    expiry_timestamp_ms: int = int64("0+", default=0)
    throttle_time_ms: int = int32("0+", default=0)
