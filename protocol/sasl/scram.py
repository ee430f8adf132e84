"""SCRAM (RFC 5802, RFC 7677): its mechanisms, its keys, and what a server keeps of a password.

The keys follow from the salted password: ``client_key`` proves that a client has it, ``stored_key`` is its hash, which
lets a server verify a proof without being able to make one, and ``server_key`` proves the server to the client.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
LONGEST_SALT: Final = 1_024
"""Bytes."""
_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One SCRAM mechanism: its name, Kafka's number of it, and its hash."""

    name: str
    type: int
    hash_name: str
    key_bytes: int

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)


class BadCredential(ValueError):
    """A text that is no credential. The message contains nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a user's password, for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. Slow on purpose: 1 ms for each few thousand iterations, so not on an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def new_credential(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what a server keeps, from what a client sends of a new password."""
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=mechanism.digest(mechanism.hmac(salted_password, b"Client Key")),
        server_key=mechanism.hmac(salted_password, b"Server Key"),
    )


def client_proof(mechanism: ScramMechanism, salted_password: bytes, signed: bytes) -> bytes:
    client_key = mechanism.hmac(salted_password, b"Client Key")
    signature = mechanism.hmac(mechanism.digest(client_key), signed)
    return _xor(client_key, signature)


def is_proof(mechanism: ScramMechanism, credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
    """Return whether a proof was made with the password of a credential, in constant time."""
    if len(proof) != mechanism.key_bytes:
        return False
    client_key = _xor(proof, mechanism.hmac(credential.stored_key, signed))
    return hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, signed: bytes) -> bytes:
    return mechanism.hmac(server_key, signed)


def signed_text(client_first: bytes, server_first: bytes, client_final_without_proof: bytes) -> bytes:
    """Return what both ends sign (AuthMessage): the bare messages of one exchange."""
    return b",".join((client_first, server_first, client_final_without_proof))


def salt_of(number: int) -> bytes:
    """Return a salt in the form of Kafka's tools: 130 bits of ``number`` in base 36."""
    digits = ""
    number &= (1 << _SALT_BITS) - 1
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def format_credential(credential: ScramCredential) -> str:
    """Return the text that Apache Kafka keeps of a credential."""
    return (
        f"salt={_encoded(credential.salt)},stored_key={_encoded(credential.stored_key)},"
        f"server_key={_encoded(credential.server_key)},iterations={credential.iterations}"
    )


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Read what ``format_credential`` or Apache Kafka wrote. Raises ``BadCredential``."""
    parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise BadCredential("the stored credential lacks a part")
    stored_key, server_key = (_decoded(parts[key]) for key in ("stored_key", "server_key"))
    iterations = parts["iterations"]
    if not iterations.isdecimal() or {len(stored_key), len(server_key)} != {mechanism.key_bytes}:
        raise BadCredential("the stored credential is malformed")
    return ScramCredential(
        salt=_decoded(parts["salt"]),
        iterations=int(iterations),
        stored_key=stored_key,
        server_key=server_key,
    )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadCredential("the stored credential is not base64") from None
    if not 0 < len(data) <= LONGEST_SALT:
        raise BadCredential("the stored credential has a part that is empty or too long")
    return data
