"""DescribeDelegationToken (API key 41): versions 1-3, flexible from 2.

Lists delegation tokens with their hmac, which is the password of a client that authenticates by a token (KIP-48).

1: throttling moves to the client. 3: the requester of a token, which may be another than its owner (KIP-373).
"""

from oncelog.protocol.schema import Message, array, binary, int16, int32, int64, string


class DescribeDelegationTokenOwner(Message):
    principal_type: str = string("0+", default="")
    principal_name: str = string("0+", default="")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, "0+", default_factory=list, nullable="0+"
    )


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = string("0+", default="")
    principal_name: str = string("0+", default="")


class DescribedDelegationToken(Message):
    principal_type: str = string("0+", default="")
    principal_name: str = string("0+", default="")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp: int = int64("0+", default=0)
    expiry_timestamp: int = int64("0+", default=0)
    max_timestamp: int = int64("0+", default=0)
    token_id: str = string("0+", default="")
    hmac: bytes = binary("0+", default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+", default_factory=list)


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    error_code: int = int16("0+", default=0)
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+", default_factory=list)
    throttle_time_ms: int = int32("0+", default=0)
