"""Which keys of a JWKS may verify a token."""

import json
from typing import Any

import pytest
from joserfc.jwk import OctKey, RSAKey

from oncelog.broker.security.json_web_keys import BadJwks, fitting_keys, parse_jwks
from tests.token_issuer import new_key

RSA = new_key("rsa").as_dict(private=False)
CURVE = new_key("ec", "P-256").as_dict(private=False)
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


def jwks(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def algorithms(**changes: Any) -> tuple[str, ...]:
    (key,) = parse_jwks(jwks({**RSA, **changes}))
    return key.algorithms


def test_key_is_for_the_algorithms_of_its_type() -> None:
    rsa, curve = parse_jwks(jwks(RSA, CURVE))
    assert (rsa.kid, rsa.algorithms) == ("rsa", RSA_ALGORITHMS)
    assert (curve.kid, curve.algorithms) == ("ec", ("ES256",))
    assert algorithms(alg="PS384", use="sig", key_ops=["verify"]) == ("PS384",)
    assert RSA["n"] not in repr(rsa)


@pytest.mark.parametrize(
    "entry",
    [
        {**RSA, "use": "enc"},
        {**RSA, "key_ops": ["encrypt"]},
        {**RSA, "key_ops": "verify"},
        {**RSA, "alg": "HS256"},
        {**RSA, "alg": "ES256"},
        {**RSA, "alg": 7},
        {**RSA, "n": RSA["n"][:200]},
        {**RSA, "n": "x" * 2000},
        {**RSA, "n": 7},
        {**RSA, "n": ""},
        {**RSA, "e": "x" * 100},
        {**RSA, "e": ""},
        {**RSA, "kid": 7},
        {**RSA, "kty": "oct", "k": "c2VjcmV0"},
        {**RSA, "kty": "OKP"},
        {**RSA, "kty": ["RSA"]},
        {**CURVE, "crv": "P-192"},
        {**CURVE, "crv": "P-384"},
        {**CURVE, "x": CURVE["y"], "y": CURVE["x"]},
        {"kty": "RSA"},
        OctKey.generate_key(256, {"kid": "o"}).as_dict(private=True),
        "text",
        None,
    ],
    ids=lambda _: "entry",
)
def test_unusable_key_is_left_out_and_others_stay(entry: object) -> None:
    (key,) = parse_jwks(jwks(entry, CURVE))
    assert key.kid == "ec"


def test_private_part_of_a_key_is_not_read() -> None:
    (key,) = parse_jwks(jwks(RSAKey.generate_key(2048, {"kid": "p"}).as_dict(private=True)))
    assert not key.key.is_private


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "it has no list of keys"),
        (b'{"keys":{}}', "it has no list of keys"),
        (b'{"keys":[]}', "has no key that can verify"),
        (jwks(*[RSA] * 201), "has more than 200 keys"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_content_that_is_no_jwks_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BadJwks, match=why):
        parse_jwks(content)


def test_fitting_keys_have_the_algorithm_and_the_id() -> None:
    keys = parse_jwks(jwks(RSA, CURVE, {**RSA, "kid": "second"}))
    assert [key.kid for key in fitting_keys(keys, "RS256", None)] == ["rsa", "second"]
    assert [key.kid for key in fitting_keys(keys, "RS256", "rsa")] == ["rsa"]
    assert fitting_keys(keys, "ES256", "rsa") == []
