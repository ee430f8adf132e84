"""Tokens of OAUTHBEARER that must be accepted, and those that must not: forged, foreign, stale, malformed.

See RFC 8725 for what has been tried against others.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jwe
from joserfc.jwk import ECKey, RSAKey

from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell
from tests.security.login_cells import LOGGED_IN, REFUSED, Say, login
from tests.token_issuer import AUDIENCE, ISSUER, TokenIssuer, claims_at, jwks_of, new_key, sign

Forge = Callable[["Forger"], str]
Message = Callable[["Forger"], bytes]
_ALGORITHM: Final = "RS256"
_SKEW_SECONDS: Final = 30
"""The broker's default."""
_END: Final = "\x01"
_LONG: Final = 70_000
"""Characters; a token has 64 KiB at most."""


class Forger:
    """The issuer's keys, of which a client knows the public part, and a key of the client's own."""

    def __init__(self) -> None:
        self.now = int(time.time())  # noqa: TID251 - the broker under test goes by the system's clock, too
        self.key: RSAKey = RSAKey.generate_key(2048, {"kid": "k1"})
        self.curve, self.foreign = new_key("ec", "P-256"), new_key("k1")

    @property
    def keys(self) -> list[RSAKey | ECKey]:
        return [self.key, self.curve]

    def claims(self, **changes: Any) -> dict[str, Any]:
        return claims_at(self.now, **changes)

    def token(self, algorithm: str = _ALGORITHM, **claims: Any) -> str:
        return sign(self.key, self.claims(**claims), algorithm=algorithm)

    def with_header(self, **header: Any) -> str:
        """Return a token by the issuer's key, with more in its header than is usual."""
        return self.signed({"alg": _ALGORITHM, "kid": "k1", **header}, json.dumps(self.claims()).encode())

    def of_payload(self, payload: bytes) -> str:
        """Return bytes that the issuer has signed, whatever they are."""
        return self.signed({"alg": _ALGORITHM, "kid": "k1"}, payload)

    def signed(self, header: Mapping[str, Any], payload: bytes) -> str:
        """Return a token whose signature is good; no library would make some of them."""
        content = f"{encoded(header)}.{encoded(payload)}"
        private_key = self.key.private_key
        assert private_key is not None
        signature = private_key.sign(content.encode(), PKCS1v15(), SHA256())
        return f"{content}.{encoded(signature)}"

    def with_parts(self, change: Callable[[list[str]], list[str]]) -> str:
        """Return a good token of which parts are changed afterwards."""
        return ".".join(change(self.token().split(".")))

    def unsigned(self, header: Mapping[str, Any], signature: str = "") -> str:
        return f"{encoded(header)}.{encoded(self.claims())}.{signature}"

    def by_secret(self, secret: bytes, algorithm: str = "HS256") -> str:
        """Return a token whose secret is something that is public."""
        signed = f"{encoded({'alg': algorithm, 'kid': 'k1'})}.{encoded(self.claims())}"
        return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"

    def encrypted(self) -> str:
        """Return a JWE: everyone can encrypt for the issuer's public key."""
        public = RSAKey.import_key(self.key.as_pem(private=False))
        header = {"alg": "RSA-OAEP", "enc": "A128GCM", "kid": "k1"}
        return jwe.encrypt_compact(header, json.dumps(self.claims()), public, algorithms=["RSA-OAEP", "A128GCM"])

    def nested(self) -> str:
        return self.of_payload(self.token().encode())


def encoded(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _claim(name: str, value: Any) -> Forge:
    return lambda forger: forger.token(**{name: value})


def _time(name: str, seconds: float, **others: float) -> Forge:
    """Return what makes a token with a time that is so far from now."""
    differences = {name: seconds, **others}

    def forge(forger: Forger) -> str:
        claims: dict[str, Any] = {key: forger.now + difference for key, difference in differences.items()}
        return forger.token(**claims)

    return forge


def _header(**header: Any) -> Forge:
    return lambda forger: forger.with_header(**header)


def _payload(payload: bytes) -> Forge:
    return lambda forger: forger.of_payload(payload)


def _parts(change: Callable[[list[str]], list[str]]) -> Forge:
    return lambda forger: forger.with_parts(change)


def _none(header: Mapping[str, Any], signature: str = "") -> Forge:
    return lambda forger: forger.unsigned(header, signature)


def _foreign(**header: Any) -> Forge:
    """Return what makes a token by the client's own key, under the name of the issuer's."""
    return lambda forger: sign(forger.foreign, forger.claims(), **header)


def _by_public_key(secret: Callable[[Any], bytes]) -> Forge:
    return lambda forger: forger.by_secret(secret(forger.key))


def _twice(forger: Forger) -> str:
    return forger.of_payload(json.dumps(forger.claims())[:-1].encode() + b',"sub":"admin"}')


def _other_name_of_expiry(forger: Forger) -> str:
    return forger.of_payload(json.dumps(forger.claims(exp=None))[:-1].encode() + b',"EXP":9999999999}')


TOKENS: Final[dict[str, tuple[str, Forge]]] = {
    "RS256": (LOGGED_IN, lambda forger: forger.token()),
    "RS512": (LOGGED_IN, lambda forger: forger.token("RS512")),
    "PS256": (LOGGED_IN, lambda forger: forger.token("PS256")),
    "ES256": (LOGGED_IN, lambda forger: sign(forger.curve, forger.claims(), algorithm="ES256")),
    "no key id, and one key that fits": (LOGGED_IN, lambda forger: sign(forger.key, forger.claims(), kid=None)),
    "one of several audiences": (LOGGED_IN, _claim("aud", ["x", AUDIENCE])),
    "expired within the skew": (LOGGED_IN, _time("exp", 5 - _SKEW_SECONDS, iat=-60)),
    "not yet valid, within the skew": (LOGGED_IN, _time("nbf", _SKEW_SECONDS - 5)),
    # Algorithms and keys
    "alg none": (REFUSED, _none({"alg": "none"})),
    "alg none with a key id": (REFUSED, _none({"alg": "none", "kid": "k1"})),
    "alg None": (REFUSED, _none({"alg": "None", "kid": "k1"})),
    "alg nOnE with a signature": (REFUSED, _none({"alg": "nOnE", "kid": "k1"}, "e30")),
    "alg none and the signature of another token": (
        REFUSED,
        lambda forger: forger.unsigned({"alg": "none", "kid": "k1"}, forger.token().split(".")[2]),
    ),
    "alg RS256 without a signature": (REFUSED, _none({"alg": _ALGORITHM, "kid": "k1"})),
    "no alg": (REFUSED, _none({"kid": "k1"}, "e30")),
    "alg empty": (REFUSED, _none({"alg": "", "kid": "k1"}, "e30")),
    "alg in lower case": (REFUSED, _none({"alg": "rs256", "kid": "k1"}, "e30")),
    "several algs": (REFUSED, _none({"alg": [_ALGORITHM, "none"], "kid": "k1"}, "e30")),
    "HS256 by the public key, PEM": (REFUSED, _by_public_key(lambda key: bytes(key.as_pem(private=False)))),
    "HS256 by the public key, PEM without its last line end": (
        REFUSED,
        _by_public_key(lambda key: bytes(key.as_pem(private=False)).strip()),
    ),
    "HS256 by the public key, DER": (REFUSED, _by_public_key(lambda key: bytes(key.as_der(private=False)))),
    "HS256 by the JWKS": (REFUSED, lambda forger: forger.by_secret(jwks_of(*forger.keys))),
    "HS256 by an empty secret": (REFUSED, _by_public_key(lambda _: b"")),
    "HS512 by the public key": (
        REFUSED,
        lambda forger: forger.by_secret(bytes(forger.key.as_pem(private=False)), "HS512"),
    ),
    "an algorithm of another kind of key": (REFUSED, _none({"alg": "ES256", "kid": "k1"}, encoded(b"x" * 64))),
    "a signature of zeros for a curve": (REFUSED, _none({"alg": "ES256", "kid": "ec"}, encoded(bytes(64)))),
    "another key": (REFUSED, _foreign()),
    "another key without an id": (REFUSED, _foreign(kid=None)),
    "unknown key id": (REFUSED, _foreign(kid="k9")),
    "unknown key id of a good signature": (REFUSED, _header(kid="k9")),
    "key id that is a path": (REFUSED, _foreign(kid="../../../../dev/null")),
    "key id with SQL": (REFUSED, _foreign(kid="k1' UNION SELECT 'x")),
    "key id that is a number": (REFUSED, _none({"alg": _ALGORITHM, "kid": 1}, "e30")),
    "key id of 10,000 characters": (REFUSED, _foreign(kid="k" * 10_000)),
    "own key in the header": (
        REFUSED,
        lambda forger: sign(forger.foreign, forger.claims(), jwk=forger.foreign.as_dict(private=False)),
    ),
    "address of own keys in the header": (REFUSED, _foreign(jku="http://127.0.0.1:9/jwks")),
    "address of an own certificate in the header": (REFUSED, _foreign(x5u="http://127.0.0.1:9/x")),
    "own certificate in the header": (REFUSED, _foreign(x5c=["MIIB"])),
    # Signatures and parts
    "claims changed": (REFUSED, _parts(lambda p: [p[0], encoded({"sub": "admin"}), p[2]])),
    "header changed": (REFUSED, _parts(lambda p: [encoded({"alg": _ALGORITHM, "kid": "k1", "x": 1}), p[1], p[2]])),
    "signature changed": (REFUSED, _parts(lambda p: [p[0], p[1], encoded(bytes(256))])),
    "signature cut": (REFUSED, _parts(lambda p: [p[0], p[1], p[2][:-4]])),
    "signature longer": (REFUSED, _parts(lambda p: [p[0], p[1], p[2] + "AAAA"])),
    "signature of 10 KB": (REFUSED, _parts(lambda p: [p[0], p[1], "A" * 10_000])),
    "two parts": (REFUSED, _parts(lambda p: p[:2])),
    "four parts": (REFUSED, _parts(lambda p: [*p, p[2]])),
    "no header": (REFUSED, _parts(lambda p: ["", p[1], p[2]])),
    "no claims": (REFUSED, _parts(lambda p: [p[0], "", p[2]])),
    "dots": (REFUSED, lambda _: ".."),
    "no JWT": (REFUSED, lambda _: "sesame"),
    "a header that is no JSON": (REFUSED, _parts(lambda p: [encoded(b"{"), p[1], p[2]])),
    "a header of 10,000 brackets": (REFUSED, _parts(lambda p: [encoded(b"[" * 10_000), p[1], p[2]])),
    "a header that is a list": (REFUSED, _parts(lambda p: [encoded([1]), p[1], p[2]])),
    "claims that are no JSON": (REFUSED, _payload(b"sub=alice")),
    "claims that are a list": (REFUSED, _payload(b'["sub","alice"]')),
    "claims that are no UTF-8": (REFUSED, _payload(b'{"sub":"\xff\xfe"}')),
    "claims of 5,000 brackets": (REFUSED, _payload(b"[" * 5_000)),
    "a claim twice": (REFUSED, _twice),
    "JWE": (REFUSED, Forger.encrypted),
    "a token in a token": (REFUSED, Forger.nested),
    "crit": (REFUSED, _header(crit=["exp"], exp=1)),
    "crit that is empty": (REFUSED, _header(crit=[])),
    "b64": (REFUSED, _none({"alg": _ALGORITHM, "kid": "k1", "b64": False, "crit": ["b64"]}, "e30")),
    # Claims
    "expired": (REFUSED, _time("exp", -_SKEW_SECONDS - 1, iat=-600)),
    "expired before it was issued": (REFUSED, _time("exp", 5, iat=10)),
    "no expiry": (REFUSED, _claim("exp", None)),
    "expiry in capitals": (REFUSED, _other_name_of_expiry),
    "expiry that is a text": (REFUSED, _claim("exp", "9999999999")),
    "expiry that is true": (REFUSED, _claim("exp", True)),
    "expiry that is infinite": (REFUSED, _claim("exp", float("inf"))),
    "expiry that is no number": (REFUSED, _claim("exp", float("nan"))),
    "expiry of 400 digits": (REFUSED, _claim("exp", 10**400)),
    "expiry below zero": (REFUSED, _claim("exp", -1)),
    "not yet valid": (REFUSED, _time("nbf", _SKEW_SECONDS + 600)),
    "nbf that is a text": (REFUSED, _claim("nbf", "now")),
    "issued in the future": (REFUSED, _time("iat", _SKEW_SECONDS + 600)),
    "no time of issue": (REFUSED, _claim("iat", None)),
    "another audience": (REFUSED, _claim("aud", "others")),
    "a part of the audience": (REFUSED, _claim("aud", AUDIENCE[:-1])),
    "several audiences, all others": (REFUSED, _claim("aud", ["others", "x"])),
    "audience that is an object": (REFUSED, _claim("aud", {AUDIENCE: 1})),
    "no audience": (REFUSED, _claim("aud", None)),
    "another issuer": (REFUSED, _claim("iss", "https://evil.example")),
    "the issuer with a slash": (REFUSED, _claim("iss", f"{ISSUER}/")),
    "several issuers": (REFUSED, _claim("iss", [ISSUER])),
    "no issuer": (REFUSED, _claim("iss", None)),
    "no user": (REFUSED, _claim("sub", None)),
    "user without a name": (REFUSED, _claim("sub", "")),
    "user that is a number": (REFUSED, _claim("sub", 7)),
    "user with a line end": (REFUSED, _claim("sub", "al\nice")),
    "user with 10,000 characters": (REFUSED, _claim("sub", "a" * 10_000)),
    "scope that is a number": (REFUSED, _claim("scope", 7)),
    "a claim of 30 KB": (LOGGED_IN, _claim("groups", ["g" * 30] * 1_000)),
    "claims of 70 KB": (REFUSED, _claim("groups", "g" * _LONG)),
}


def _message(*, header: str = "n,,", extensions: str = "", end: str = _END, auth: str = "auth=Bearer ") -> Message:
    """Return what makes the first message of a client with a good token, and something else."""
    return lambda forger: f"{header}{_END}{auth}{forger.token()}{_END}{extensions}{end}".encode()


def _pairs(*pairs: str) -> str:
    return "".join(f"{pair}{_END}" for pair in pairs)


MESSAGES: Final[dict[str, tuple[str, Message]]] = {
    "as oneself": (LOGGED_IN, _message(header="n,a=alice,")),
    "extensions": (LOGGED_IN, _message(extensions=_pairs("traceId=7", "logicalCluster=lkc"))),
    "bearer in lower case": (LOGGED_IN, _message(auth="auth=bearer ")),
    "as another": (REFUSED, _message(header="n,a=admin,")),
    "as another in other case": (REFUSED, _message(header="n,a=Alice,")),
    "as nobody": (REFUSED, _message(header="n,a=,")),
    "with a bad escape": (REFUSED, _message(header="n,a=al=20ice,")),
    "without a=": (REFUSED, _message(header="n,alice,")),
    "that could bind a channel": (REFUSED, _message(header="y,,")),
    "that binds a channel": (REFUSED, _message(header="p=tls-unique,,")),
    "without a header": (REFUSED, _message(header="")),
    "an extension twice": (REFUSED, _message(extensions=_pairs("a=1", "a=2"))),
    "a second token": (REFUSED, lambda forger: _message(extensions=_pairs(f"auth=Bearer {forger.token()}"))(forger)),
    "33 extensions": (REFUSED, _message(extensions=_pairs(*(f"{'k' * number}=1" for number in range(1, 34))))),
    "an extension without a name": (REFUSED, _message(extensions=_pairs("=1"))),
    "an extension without a value": (REFUSED, _message(extensions=_pairs("a="))),
    "an extension with a digit in its name": (REFUSED, _message(extensions=_pairs("a1=1"))),
    "an extension of 10 KB": (REFUSED, _message(extensions=_pairs(f"a={'x' * 10_000}"))),
    "Basic": (REFUSED, _message(auth="auth=Basic ")),
    "without a scheme": (REFUSED, _message(auth="auth=")),
    "without auth": (REFUSED, _message(auth="")),
    "without its end": (REFUSED, _message(end="")),
    "something behind its end": (REFUSED, _message(end=f"{_END}x")),
    "an empty token": (REFUSED, lambda _: f"n,,{_END}auth=Bearer {_END}{_END}".encode()),
    "a line end in the token": (REFUSED, lambda _: f"n,,{_END}auth=Bearer a.b\n.c{_END}{_END}".encode()),
    "a token that is no ASCII": (REFUSED, lambda _: f"n,,{_END}auth=Bearer ü.ü.ü{_END}{_END}".encode()),
    "nothing": (REFUSED, lambda _: b""),
    "one byte": (REFUSED, lambda _: b"\x01"),
    "garbage": (REFUSED, lambda _: bytes(range(256)) * 40),
    "200 KB": (REFUSED, lambda _: b"n,,\x01" + b"a" * 200_000),
    "the words of PLAIN": (REFUSED, lambda _: b"\0alice\0wonderland"),
    "the words of SCRAM": (REFUSED, lambda _: b"n,,n=alice,r=nonce"),
}


async def _send(first: bytes, say: Say) -> None:
    """Say a first message and, if the broker does not accept it, what ends the exchange."""
    if await say(first):
        await say(_END.encode())


async def _go_on(forger: Forger, say: Say) -> None:
    """Send a good token after a bad one."""
    await say(_first(forger.unsigned({"alg": "none"})))
    await say(_first(forger.token()))


def _first(token: str) -> bytes:
    return f"n,,{_END}auth=Bearer {token}{_END}{_END}".encode()


async def _try_all(port: int, forger: Forger) -> list[Cell]:
    firsts = {f"JWT: {name}": (expected, _first(forge(forger))) for name, (expected, forge) in TOKENS.items()}
    firsts |= {f"OAUTHBEARER {name}": (expected, made(forger)) for name, (expected, made) in MESSAGES.items()}
    logins = {name: (expected, partial(_send, first)) for name, (expected, first) in firsts.items()}
    logins["JWT: a good token after a bad one"] = (REFUSED, partial(_go_on, forger))
    cells = [
        Cell(name, expected, await login(port, "OAUTHBEARER", words)) for name, (expected, words) in logins.items()
    ]
    good = partial(_send, _first(forger.token()))
    return [*cells, Cell("JWT: a good token after all of them", LOGGED_IN, await login(port, OAUTHBEARER, good))]


def jwt_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker, and look for tokens in its log."""
    forger, port = Forger(), free_port()
    with TokenIssuer(keys=forger.keys) as issuer:
        settings = [
            f"listeners=SASL_PLAINTEXT://localhost:{port}",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            f"sasl.oauthbearer.jwks.endpoint.url={issuer.jwks_url}",
            f"sasl.oauthbearer.expected.audience={AUDIENCE}",
            f"sasl.oauthbearer.expected.issuer={ISSUER}",
            "connection.failed.authentication.delay.ms=10",
        ]
        with OncelogProcess(directory, settings, port):
            cells = asyncio.run(_try_all(port, forger))
        fetched = str(len(issuer.fetches))
    log = "".join(path.read_text() for path in sorted(directory.glob("std*.log")))
    signature = forger.token().split(".")[2]
    return [
        *cells,
        Cell("JWT: fetches of keys, for all ids that are unknown", "2", fetched),
        Cell("JWT: what the log has of the good token", "nothing", "its signature" if signature in log else "nothing"),
    ]
