"""DescribeUserScramCredentials (API key 50): version 0, flexible.

The SCRAM mechanisms for which users have credentials (KIP-554). Null or no users: all of them.
"""

from oncelog.protocol.schema import Message, array, int8, int16, int32, string


class UserName(Message):
    name: str = string("0+", default="")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, "0+", default_factory=list, nullable="0+")


class CredentialInfo(Message):
    mechanism: int = int8("0+", default=0)
    iterations: int = int32("0+", default=0)


class DescribeUserScramCredentialsResult(Message):
    user: str = string("0+", default="")
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+", default_factory=list)


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult, "0+", default_factory=list
    )
