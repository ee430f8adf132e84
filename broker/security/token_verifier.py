"""What is required of a token of OAUTHBEARER: a signature by a key of the JWKS, and claims that are for this broker.

A token is a JWT in three parts. Its header chooses among the keys and algorithms that there are here, and nothing else:
keys and addresses of keys in a header are not looked at. Without ``kid`` the algorithm must fit exactly one key. Claims
are judged only after the signature. ``exp`` and ``iat`` are required; the clocks may differ by the skew. No result
contains a part of the token, except the name of the user after the signature is verified.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from oncelog.broker.security.json_web_keys import ALGORITHMS, JsonWebKey, fitting_keys
from oncelog.protocol.sasl.oauthbearer import MAX_TOKEN_BYTES

_MAX_HEADER_BYTES: Final = 16 * 1024
_MAX_SIGNATURE_BYTES: Final = 2048
_MAX_NAME_CHARACTERS: Final = 1024
_MAX_KID_CHARACTERS: Final = 1024
_LATEST_SECONDS: Final = 253_402_300_799.0
"""The end of the year 9999."""
_UNSECURED: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What the claims of a token must say."""

    audience: tuple[str, ...]
    """A token is for one of them at least; none: for any."""
    issuer: str
    """Empty: any."""
    clock_skew_seconds: int
    subject_claim: str
    """Whose value is the name of the user."""
    scope_claim: str
    """Text or a list of texts, if the token has it."""


class VerifiedToken(NamedTuple):
    """What a good token says."""

    user: str
    expires_ms: int
    """Milliseconds since the epoch."""


class BadToken(NamedTuple):
    """Why a token is refused, for the log."""

    reason: str
    lacks_key: bool = False
    """There is no key for it: a new JWKS may have it."""


TokenOutcome: TypeAlias = VerifiedToken | BadToken


class _Refused(Exception):
    """Carries a ``BadToken`` out of a check."""

    def __init__(self, reason: str, *, lacks_key: bool = False) -> None:
        super().__init__(reason)
        self.outcome = BadToken(reason, lacks_key)


def verify_token(token: str, keys: Sequence[JsonWebKey], rules: TokenRules, now_ms: int) -> TokenOutcome:
    """Return what a signed token says, or why it is refused."""
    try:
        header, payload, _ = _split(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise _Refused(f"its algorithm is not one of {', '.join(ALGORITHMS)}")
        _verify_signature(token, _key_for(header, algorithm, keys), algorithm)
        return _judge(_object(payload, "claims"), rules, now_ms)
    except _Refused as refused:
        return refused.outcome


def read_unsecured_token(token: str, rules: TokenRules, now_ms: int) -> TokenOutcome:
    """Return what a token without a signature says, or why it is refused. Every client can make one."""
    try:
        header, payload, signature = _split(token)
        if header.get("alg") != _UNSECURED or signature:
            raise _Refused("it is signed, and this listener takes unsecured tokens only")
        return _judge(_object(payload, "claims"), rules, now_ms)
    except _Refused as refused:
        return refused.outcome


# The signature


def _split(token: str) -> tuple[Mapping[str, Any], bytes, bytes]:
    """Return header, payload and signature."""
    if len(token) > MAX_TOKEN_BYTES:
        raise _Refused(f"it is longer than {MAX_TOKEN_BYTES} characters")
    parts = token.split(".", 3)
    if len(parts) != 3:
        raise _Refused("it is not a JWT of three parts")
    header_bytes, payload, signature = (_decode(part) for part in parts)
    if len(header_bytes) > _MAX_HEADER_BYTES or len(signature) > _MAX_SIGNATURE_BYTES:
        raise _Refused("its header or signature is too long")
    header = _object(header_bytes, "header")
    if "crit" in header or "b64" in header:
        raise _Refused("its header requires an extension that is not supported")
    return header, payload, signature


def _decode(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _Refused("a part of it is not base64url") from None


def _object(content: bytes, what: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(content, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise _Refused(f"its {what} cannot be read as JSON") from None
    if not isinstance(parsed, dict):
        raise _Refused(f"its {what} is not a JSON object")
    return parsed


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _key_for(header: Mapping[str, Any], algorithm: str, keys: Sequence[JsonWebKey]) -> JsonWebKey:
    kid = header.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _MAX_KID_CHARACTERS):
        raise _Refused("its key id is not valid")
    if not keys:
        raise _Refused("there are no keys to verify it: the JWKS could not be fetched so far", lacks_key=True)
    fitting = fitting_keys(keys, algorithm, kid)
    if not fitting:
        named = "a key id and algorithm" if kid is not None else "an algorithm"
        raise _Refused(f"it has {named} for which the JWKS has no key", lacks_key=True)
    if len(fitting) > 1:
        raise _Refused("several keys of the JWKS fit its header: tokens need distinct key ids")
    return fitting[0]


def _verify_signature(token: str, key: JsonWebKey, algorithm: str) -> None:
    from joserfc import jws
    from joserfc.errors import JoseError

    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = registry.max_signature_length = MAX_TOKEN_BYTES
    try:
        jws.deserialize_compact(token, key.key, registry=registry)
    except (JoseError, ValueError, TypeError):
        raise _Refused("its signature is not valid") from None


# The claims


def _judge(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> VerifiedToken:
    now, skew = now_ms / 1000, rules.clock_skew_seconds
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires <= issued:
        raise _Refused("it expires before it is issued")
    if now >= expires + skew:
        raise _Refused(f"it has expired {now - expires:.0f} s ago")
    if now < issued - skew:
        raise _Refused(f"it is issued {issued - now:.0f} s in the future: compare the clocks")
    if "nbf" in claims and now < _time(claims, "nbf") - skew:
        raise _Refused("it is not yet valid")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise _Refused("it is from another issuer than sasl.oauthbearer.expected.issuer")
    if rules.audience and not _texts(claims.get("aud")) & set(rules.audience):
        raise _Refused("it is for another audience than sasl.oauthbearer.expected.audience")
    scope = claims.get(rules.scope_claim)
    if scope is not None and not isinstance(scope, str) and not _is_list_of_text(scope):
        raise _Refused("its scope is neither a text nor a list of texts (sasl.oauthbearer.scope.claim.name)")
    return VerifiedToken(_user(claims, rules.subject_claim), int(expires * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused(f"it has no claim {name}, or one that is no number")
    if not 0 <= value <= _LATEST_SECONDS:
        raise _Refused(f"its claim {name} is no time")
    return float(value)


def _user(claims: Mapping[str, Any], name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str) or not user.strip() or len(user) > _MAX_NAME_CHARACTERS or not user.isprintable():
        raise _Refused("it has no name of a user in the claim sasl.oauthbearer.sub.claim.name")
    return user


def _texts(claim: object) -> set[str]:
    if isinstance(claim, str):
        return {claim}
    return {each for each in claim if isinstance(each, str)} if isinstance(claim, list) else set()


def _is_list_of_text(claim: object) -> bool:
    return isinstance(claim, list) and all(isinstance(each, str) for each in claim)
