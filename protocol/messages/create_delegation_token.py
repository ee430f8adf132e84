"""CreateDelegationToken (API key 38): versions 1-3, flexible from 2.

Creates a token with which a client can authenticate by SCRAM as its owner (KIP-48).

1: throttling moves to the client. 3: a token for another owner than the client (KIP-373).
"""

from oncelog.protocol.schema import Message, array, binary, int16, int32, int64, string


class CreatableRenewers(Message):
    principal_type: str = string("0+", default="")
    principal_name: str = string("0+", default="")


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", default="", nullable="3+")
    owner_principal_name: str | None = string("3+", default="", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+", default_factory=list)
    max_lifetime_ms: int = int64("0+", default=0)


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: int = int16("0+", default=0)
    principal_type: str = string("0+", default="")
    principal_name: str = string("0+", default="")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64("0+", default=0)
    expiry_timestamp_ms: int = int64("0+", default=0)
    max_timestamp_ms: int = int64("0+", default=0)
    token_id: str = string("0+", default="")
    hmac: bytes = binary("0+", default=b"")
    throttle_time_ms: int = int32("0+", default=0)
