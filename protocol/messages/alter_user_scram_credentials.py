"""AlterUserScramCredentials (API key 51): version 0, flexible.

Adds, replaces and deletes the SCRAM credentials of users (KIP-554). The client computes the salted password.
"""

from oncelog.protocol.schema import Message, array, binary, int8, int16, int32, string


class ScramCredentialDeletion(Message):
    name: str = string("0+", default="")
    mechanism: int = int8("0+", default=0)


class ScramCredentialUpsertion(Message):
    name: str = string("0+", default="")
    mechanism: int = int8("0+", default=0)
    iterations: int = int32("0+", default=0)
    salt: bytes = binary("0+", default=b"")
    salted_password: bytes = binary("0+", default=b"")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+", default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+", default_factory=list)


class AlterUserScramCredentialsResult(Message):
    user: str = string("0+", default="")
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+", default_factory=list)
