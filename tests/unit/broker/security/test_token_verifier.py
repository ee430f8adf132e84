"""Tokens, good and forged: what a client with any other token than one of the issuer for this broker gets."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from oncelog.broker.security.json_web_keys import JsonWebKey, parse_jwks
from oncelog.broker.security.token_verifier import (
    BadToken,
    TokenOutcome,
    TokenRules,
    VerifiedToken,
    read_unsecured_token,
    verify_token,
)
from tests.token_issuer import AUDIENCE, ISSUER, claims_at, jwks_of, new_key, sign

NOW = 1_800_000_000
SKEW = 30
KEY, OTHER = new_key("k1"), new_key("k2")
RULES = TokenRules(
    audience=(AUDIENCE, "another"), issuer=ISSUER, clock_skew_seconds=SKEW, subject_claim="sub", scope_claim="scope"
)
KEYS = parse_jwks(jwks_of(KEY))


def good(**changes: Any) -> dict[str, Any]:
    return claims_at(NOW, **changes)


def verify(
    token: str, keys: tuple[JsonWebKey, ...] = KEYS, rules: TokenRules = RULES, now: float = NOW
) -> TokenOutcome:
    return verify_token(token, keys, rules, int(now * 1000))


def encode(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def reason(outcome: TokenOutcome) -> str:
    assert isinstance(outcome, BadToken), outcome
    return outcome.reason


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_token_of_the_issuer_is_accepted(algorithm: str) -> None:
    assert verify(sign(KEY, good(), algorithm=algorithm)) == VerifiedToken("alice", (NOW + 3600) * 1000)


@pytest.mark.parametrize(("curve", "algorithm"), [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")])
def test_token_by_a_curve_is_accepted_and_only_by_its_algorithm(curve: str, algorithm: str) -> None:
    key = new_key("ec", curve)
    keys = parse_jwks(jwks_of(key))
    token = sign(key, good(), algorithm=algorithm)
    assert isinstance(verify(token, keys), VerifiedToken)
    others = {"ES256", "ES384", "ES512", "RS256"} - {algorithm}
    _, payload, signature = token.split(".")
    for other in others:
        forged = f"{encode({'alg': other, 'kid': 'ec'})}.{payload}.{signature}"
        assert "the JWKS has no key" in reason(verify(forged, keys))
    assert "could not be fetched so far" in reason(verify(token, ()))


@pytest.mark.parametrize("audience", [AUDIENCE, [AUDIENCE], ["x", "another"]])
def test_audience_may_be_one_of_several(audience: object) -> None:
    assert isinstance(verify(sign(KEY, good(aud=audience))), VerifiedToken)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aud": "others"}, "another audience"),
        ({"aud": ["others", 1, None]}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"iss": "https://issuer.example/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "9999999999"}, "no claim exp"),
        ({"exp": True}, "no claim exp"),
        ({"exp": 10**400}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": -1}, "exp is no time"),
        ({"iat": None}, "no claim iat"),
        ({"iat": NOW - 3600, "exp": NOW - SKEW}, "it has expired 30 s ago"),
        ({"iat": NOW + SKEW + 1}, "issued 31 s in the future"),
        ({"iat": NOW + 10, "exp": NOW + 5}, "expires before it is issued"),
        ({"nbf": NOW + SKEW + 1}, "not yet valid"),
        ({"nbf": "now"}, "no claim nbf"),
        ({"sub": None}, "no name of a user"),
        ({"sub": ""}, "no name of a user"),
        ({"sub": "  "}, "no name of a user"),
        ({"sub": 7}, "no name of a user"),
        ({"sub": "al\nice"}, "no name of a user"),
        ({"sub": "x" * 2000}, "no name of a user"),
        ({"scope": 7}, "its scope is neither"),
        ({"scope": ["a", 7]}, "its scope is neither"),
    ],
)
def test_claims_that_are_not_for_this_broker_are_refused(changes: dict[str, Any], why: str) -> None:
    assert why in reason(verify(sign(KEY, {k: v for k, v in {**good(), **changes}.items() if v is not None})))


@pytest.mark.parametrize(
    "changes",
    [
        {"iat": NOW - 3600, "exp": NOW - SKEW + 1},
        {"iat": NOW + SKEW},
        {"nbf": NOW + SKEW},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"exp": NOW + 0.5},
    ],
)
def test_clocks_that_differ_by_less_than_the_skew_refuse_nothing(changes: dict[str, Any]) -> None:
    assert isinstance(verify(sign(KEY, good(**changes))), VerifiedToken)


def test_user_is_the_value_of_the_claim_in_the_settings() -> None:
    rules = TokenRules(audience=(), issuer="", clock_skew_seconds=0, subject_claim="client_id", scope_claim="scp")
    outcome = verify(sign(KEY, good(client_id="app", aud=None, iss=None)), rules=rules)
    assert isinstance(outcome, VerifiedToken)
    assert outcome.user == "app"


# Signatures


def test_token_without_a_signature_is_refused() -> None:
    for header in ({"alg": "none"}, {"alg": "None", "kid": "k1"}, {"alg": "NONE"}, {"kid": "k1"}, {"alg": ["RS256"]}):
        for signature in ("", "e30"):
            token = f"{encode(header)}.{encode(good())}.{signature}"
            assert "its algorithm is not one of RS256" in reason(verify(token))


def test_token_signed_by_the_public_key_as_a_secret_is_refused() -> None:
    assert isinstance(KEY, RSAKey)
    secrets = (KEY.as_pem(private=False), KEY.as_pem(private=False).strip(), KEY.as_der(private=False), jwks_of(KEY))
    for secret in secrets:
        signed = f"{encode({'alg': 'HS256', 'kid': 'k1'})}.{encode(good())}"
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        assert "its algorithm is not one of" in reason(verify(f"{signed}.{encode(mac)}"))


def test_token_by_another_key_is_refused() -> None:
    assert reason(verify(sign(OTHER, good(), kid="k1"))) == "its signature is not valid"


@pytest.mark.parametrize("part", [0, 1, 2])
def test_token_whose_bytes_are_changed_is_refused(part: int) -> None:
    parts = sign(KEY, good()).split(".")
    changes = [encode({"alg": "RS256", "kid": "k1", "x": 1}), encode(good(user="mallory")), encode(b"\1" * 256)]
    parts[part] = changes[part]
    assert reason(verify(".".join(parts))) == "its signature is not valid"


def test_key_and_its_address_in_the_header_are_not_looked_at() -> None:
    public = OTHER.as_dict(private=False)
    for header in ({"jwk": public}, {"jku": "https://evil.example/jwks"}, {"x5u": "https://evil.example/x"}):
        assert reason(verify(sign(OTHER, good(), kid="k1", **header))) == "its signature is not valid"


def test_missing_key_id_is_accepted_if_one_key_fits_and_refused_if_two_do() -> None:
    token = sign(KEY, good(), kid=None)
    assert isinstance(verify(token), VerifiedToken)
    assert isinstance(verify(token, parse_jwks(jwks_of(KEY, new_key("ec", "P-256")))), VerifiedToken)
    assert "several keys" in reason(verify(token, parse_jwks(jwks_of(KEY, OTHER))))


def test_unknown_key_id_lacks_a_key_and_other_faults_do_not() -> None:
    unknown = verify(sign(OTHER, good()))
    assert isinstance(unknown, BadToken)
    assert unknown.lacks_key
    assert isinstance(verify(sign(KEY, good(), kid="k1"), ()), BadToken)
    forged = verify(sign(OTHER, good(), kid="k1"))
    assert isinstance(forged, BadToken)
    assert not forged.lacks_key


def test_token_in_a_token_is_refused() -> None:
    inner = sign(KEY, good())
    from joserfc import jws

    nested = jws.serialize_compact({"alg": "RS256", "kid": "k1", "cty": "JWT"}, inner, KEY, algorithms=["RS256"])
    assert "its claims cannot be read as JSON" in reason(verify(nested))


@pytest.mark.parametrize("header", [{"crit": ["exp"], "exp": 1}, {"b64": False, "crit": ["b64"]}, {"b64": True}])
def test_header_that_requires_an_extension_is_refused(header: dict[str, Any]) -> None:
    token = f"{encode({'alg': 'RS256', 'kid': 'k1', **header})}.{encode(good())}.{encode(b'x' * 256)}"
    assert "extension that is not supported" in reason(verify(token))


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "a.b.c.d.e",
        "a" * 70_000,
        f"{encode({'alg': 'RS256', 'x': 'x' * 20_000})}.e30.e30",
        f"{encode({'alg': 'RS256'})}.e30.{encode(b'x' * 3000)}",
        f"{encode([])}.e30.e30",
        f"{encode(b'[' * 20_000)}.e30.e30",
        f"{encode(b'[' * 10_000)}.e30.e30",
        f"{encode(b'{')}.e30.e30",
        f"{encode({'alg': 'RS256', 'kid': 7})}.e30.e30",
        f"{encode({'alg': 'RS256', 'kid': 'x' * 2000})}.e30.e30",
        encode(b'{"alg":"none","alg":"RS256"}') + ".e30.e30",
    ],
    ids=lambda token: token[:20],
)
def test_text_that_is_no_token_is_refused(token: str) -> None:
    assert reason(verify(token))


def test_claims_with_a_name_twice_are_refused() -> None:
    from joserfc import jws

    payload = json.dumps(good()).encode()[:-1] + b',"sub":"admin"}'
    token = jws.serialize_compact({"alg": "RS256", "kid": "k1"}, payload, KEY, algorithms=["RS256"])
    assert "its claims cannot be read" in reason(verify(token))


@given(st.text(alphabet="abcdefgABCDEFG0123456789-_.", max_size=300))
def test_text_of_any_kind_has_an_outcome(token: str) -> None:
    assert isinstance(verify(token), BadToken)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3))
def test_claims_of_any_type_have_an_outcome(value: object) -> None:
    for name in ("exp", "iat", "nbf", "sub", "aud", "iss", "scope"):
        token = f"{encode({'alg': 'none'})}.{encode({**good(), name: value})}."
        read_unsecured_token(token, RULES, NOW * 1000)


# Unsecured tokens


def test_unsecured_token_is_read_where_it_is_allowed_and_its_claims_are_judged() -> None:
    token = f"{encode({'alg': 'none'})}.{encode(good())}."
    assert read_unsecured_token(token, RULES, NOW * 1000) == VerifiedToken("alice", (NOW + 3600) * 1000)
    late = f"{encode({'alg': 'none'})}.{encode(good(iat=1, exp=2))}."
    assert "it has expired" in reason(read_unsecured_token(late, RULES, NOW * 1000))


def test_signed_token_is_refused_where_unsecured_ones_are_read() -> None:
    assert "unsecured tokens only" in reason(read_unsecured_token(sign(KEY, good()), RULES, NOW * 1000))
    signed = f"{encode({'alg': 'none'})}.{encode(good())}.e30"
    assert "unsecured tokens only" in reason(read_unsecured_token(signed, RULES, NOW * 1000))
