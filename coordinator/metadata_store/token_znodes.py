"""Where delegation tokens lie in the metadata store, and what their znodes hold: those of Apache Kafka 3.9.

``/delegation_token/tokens/ID`` has one token as JSON, without its hmac. A change also leaves a sequential znode below
``/delegation_token/token_changes`` with the id.
"""

import re
from typing import Final

from oncelog.coordinator.metadata_store.znodes import MalformedZnode, from_json, to_json
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.principal import Principal, parse_principal

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
PERSISTENT_PATHS: Final = ("/delegation_token", TOKENS, CHANGES)
"""What a broker with a secret key makes sure of when it starts, parents first."""
LONGEST_ZNODE: Final = 100_000
"""Bytes of a token: the principals in it are chosen by clients."""

_VERSION: Final = 3
_FIRST_VERSION_WITH_REQUESTER: Final = 3
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def token_path(token_id: str) -> str:
    """Return where a token lies."""
    return f"{TOKENS}/{token_id}"


def is_token_id(name: str) -> bool:
    """Return whether a name can be that of a token's znode."""
    return _ID.fullmatch(name) is not None


def encode_token(token: TokenInformation) -> bytes:
    return to_json(
        {
            "version": _VERSION,
            "owner": _sanitized(token.owner),
            "tokenRequester": _sanitized(token.requester),
            "renewers": [_sanitized(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issue_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "expiryTimestamp": token.expiry_timestamp_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(token_id: str, data: bytes) -> TokenInformation:
    """Return the token of a znode. Raises ``MalformedZnode``, also if the znode has another token's name."""
    content = from_json(data)
    try:
        version = content["version"]
        if not 1 <= version <= _VERSION or content["tokenId"] != token_id:
            raise ValueError("another version or another token")
        owner = _principal(content["owner"])
        return TokenInformation(
            token_id=token_id,
            owner=owner,
            requester=_principal(content["tokenRequester"]) if version >= _FIRST_VERSION_WITH_REQUESTER else owner,
            renewers=tuple(map(_principal, content["renewers"])),
            issue_timestamp_ms=_timestamp(content["issueTimestamp"]),
            max_timestamp_ms=_timestamp(content["maxTimestamp"]),
            expiry_timestamp_ms=_timestamp(content["expiryTimestamp"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedZnode(f"not a delegation token: {data[:500]!r}") from error


def encode_change(token_id: str) -> bytes:
    """Encode the announcement of a change."""
    return token_id.encode()


def decode_change(data: bytes) -> str:
    """Return the id of the token that has changed. Raises ``MalformedZnode``."""
    name = data.decode(errors="replace")
    if not is_token_id(name):
        raise MalformedZnode(f"not the id of a delegation token: {data[:100]!r}")
    return name


def _sanitized(principal: Principal) -> str:
    from urllib.parse import quote  # Only a broker with tokens pays for it, not every start.

    return quote(str(principal), safe="").replace("~", "%7E")


def _principal(value: object) -> Principal:
    if not isinstance(value, str):
        raise TypeError("a string is expected")
    from urllib.parse import unquote

    return parse_principal(unquote(value))


def _timestamp(value: object) -> int:
    if type(value) is not int:
        raise TypeError("a number is expected")
    return value
