"""Delegation tokens (KIP-48, KIP-373): what they are, and what becomes of a request about one. Pure.

A token lets a client authenticate by SCRAM as the token's owner, without the owner's own secret. Its id takes the place
of the user, its hmac that of the password: HMAC-SHA512 of the id under a key that only brokers have. The hmac is stored
nowhere; every broker computes it.

A token expires at ``expiry_timestamp_ms``, which its owner and its renewers can move as far as ``max_timestamp_ms``.
The decisions, and which error comes first, are those of Apache Kafka 4.3.
"""

import base64
import hmac
import random
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import USER, Principal

_ID_BITS: Final = 128
_VERSION_AND_VARIANT: Final = 0xF << 76 | 0xC << 60
_RANDOM_UUID: Final = 0x4 << 76 | 0x8 << 60
_LATEST_MS: Final = 2**63 - 1
MOST_RENEWERS: Final = 1_000
"""Of one token."""
Decision: TypeAlias = TokenInformation | ErrorCode | None
"""The token as it is to be from now on, None if it is to be removed, or why nothing is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """How long tokens are valid, in milliseconds."""

    max_lifetime_ms: int
    """From its creation; it cannot be renewed beyond."""
    expiry_time_ms: int
    """From its creation or a renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What a client requests of a new token."""

    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    max_lifetime_ms: int
    """0 or less: the longest that is allowed."""


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """Return the hmac of a token, which is a secret like a password."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def new_token_id(rng: random.Random) -> str:
    """Return an id: a random UUID as URL-safe base64, 22 characters, the first of which is no hyphen."""
    while True:
        uuid = rng.getrandbits(_ID_BITS) & ~_VERSION_AND_VARIANT | _RANDOM_UUID
        token_id = base64.urlsafe_b64encode(uuid.to_bytes(_ID_BITS // 8, "big")).rstrip(b"=").decode()
        if not token_id.startswith("-"):
            return token_id


def issue(request: TokenRequest, limits: TokenLimits, token_id: str, now_ms: int) -> TokenInformation | ErrorCode:
    """Return a new token, or why there is none.

    Authentication finds principals of type ``User`` only: an owner of another type would be such a user of the same
    name, so it is refused like a renewer of another type.
    """
    if any(principal.type != USER for principal in (request.owner, *request.renewers)):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if len(request.renewers) > MOST_RENEWERS:
        return ErrorCode.INVALID_REQUEST
    lifetime_ms = limits.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_timestamp_ms = _later(now_ms, lifetime_ms)
    return TokenInformation(
        token_id=token_id,
        owner=request.owner,
        requester=request.requester,
        renewers=tuple(dict.fromkeys(request.renewers)),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=max_timestamp_ms,
        expiry_timestamp_ms=min(max_timestamp_ms, _later(now_ms, limits.expiry_time_ms)),
    )


def renew(token: TokenInformation, principal: Principal, period_ms: int, limits: TokenLimits, now_ms: int) -> Decision:
    """Decide a renewal for ``period_ms`` from now; 0 or less: as long as is allowed."""
    if token.is_expired(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    if not token.may_renew(principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    allowed_ms = min(limits.expiry_time_ms, period_ms) if period_ms > 0 else limits.expiry_time_ms
    return _expiring(token, _later(now_ms, allowed_ms))


def expire(token: TokenInformation, principal: Principal, period_ms: int, now_ms: int) -> Decision:
    """Decide that a token expires ``period_ms`` from now; below 0: it is removed at once, also if it has expired."""
    if not token.may_renew(principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if period_ms < 0:
        return None
    if token.is_expired(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return _expiring(token, _later(now_ms, period_ms))


def remove_if_expired(token: TokenInformation, now_ms: int) -> Decision:
    """Decide whether a token that may have expired is removed."""
    return None if token.is_expired(now_ms) else token


def _expiring(token: TokenInformation, timestamp_ms: int) -> TokenInformation:
    return replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, timestamp_ms))


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _LATEST_MS)
