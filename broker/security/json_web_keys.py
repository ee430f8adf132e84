"""``JsonWebKey``: the public keys of a JWKS (RFC 7517) that may verify a token here.

Usable are RSA keys of 2048 to 8192 bits and EC keys on P-256, P-384 and P-521, for signatures. Others in a JWKS are
left out: secret keys above all, with which every reader of the JWKS could sign. The key decides which algorithms it may
be used with, by its type, its curve and its own ``alg``; a token only chooses among these.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from joserfc.jwk import Key

MAX_JWKS_BYTES: Final = 1 << 20
_MAX_KEYS: Final = 200
_RSA_BITS: Final = range(2048, 8193)
_MAX_EXPONENT_CHARACTERS: Final = 6
"""Of an RSA key in base64: 32 bits. A longer one makes each verification slow."""
_MAX_NUMBER_CHARACTERS: Final = 1400
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = (*_RSA_ALGORITHMS, *_CURVE_ALGORITHMS.values())
"""All that are accepted: neither ``none`` nor HS256 and its like, which have no public key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonWebKey:
    """A public key, and what it may be used with."""

    kid: str
    """Empty if it has none."""
    algorithms: tuple[str, ...]
    key: "Key" = field(repr=False)


class BadJwks(ValueError):
    """Bytes that are no JWKS, or one without a usable key. The text contains nothing of them."""


def load_library() -> None:
    """Load what verifies signatures: it takes some 0.1 s, which clients should not wait for."""
    import joserfc.jwk
    import joserfc.jws  # noqa: F401


def parse_jwks(content: bytes) -> tuple[JsonWebKey, ...]:
    """Return the usable keys. Raises ``BadJwks`` if there is none."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise BadJwks("is not JSON") from None
    found = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(found, list):
        raise BadJwks("is not a JWKS: it has no list of keys")
    if len(found) > _MAX_KEYS:
        raise BadJwks(f"has more than {_MAX_KEYS} keys")
    usable = tuple(_usable(found))
    if not usable:
        raise BadJwks(f"has no key that can verify a signature by {', '.join(ALGORITHMS)}")
    return usable


def fitting_keys(keys: Iterable[JsonWebKey], algorithm: str, kid: str | None) -> list[JsonWebKey]:
    """Return the keys that a token with this header may be signed by; ``kid`` is None if it names none."""
    return [key for key in keys if algorithm in key.algorithms and (kid is None or key.kid == kid)]


def _usable(found: Iterable[object]) -> Iterable[JsonWebKey]:
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, RSAKey

    for entry in found:
        if not isinstance(entry, dict):
            continue
        public = _public_part(entry)
        algorithms = _algorithms(entry)
        if not public or not algorithms or not _is_for_verification(entry):
            continue
        kid = entry.get("kid", "")
        if not isinstance(kid, str):
            continue
        try:
            key: Key = RSAKey.import_key(public) if entry["kty"] == "RSA" else ECKey.import_key(public)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        yield JsonWebKey(kid=kid, algorithms=algorithms, key=key)


def _public_part(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a public key; empty if they are missing or out of bounds."""
    names = {"RSA": ("n", "e"), "EC": ("x", "y", "crv")}.get(str(entry.get("kty")), ())
    values = {name: entry.get(name) for name in names}
    if not values or not all(isinstance(v, str) and len(v) <= _MAX_NUMBER_CHARACTERS for v in values.values()):
        return {}
    if "n" in values and (_bits(entry["n"]) not in _RSA_BITS or len(entry["e"]) > _MAX_EXPONENT_CHARACTERS):
        return {}
    return {"kty": entry["kty"], **values}


def _bits(text: str) -> int:
    """Return the length of a number in base64url; 0 if the text is none."""
    from joserfc.util import urlsafe_b64decode

    try:
        return int.from_bytes(urlsafe_b64decode(text.encode()), "big").bit_length()
    except ValueError:
        return 0


def _algorithms(entry: Mapping[str, Any]) -> tuple[str, ...]:
    of_type = _RSA_ALGORITHMS if entry.get("kty") == "RSA" else (_CURVE_ALGORITHMS.get(str(entry.get("crv")), ""),)
    own = entry.get("alg")
    return tuple(each for each in of_type if each and own in (None, each))


def _is_for_verification(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops")
    return entry.get("use") in (None, "sig") and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
