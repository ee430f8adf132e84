"""The four messages of SCRAM (RFC 5802).

::

    client-first   n,a=AUTHZID,n=USER,r=CLIENT_NONCE[,EXTENSIONS]
    server-first   r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client-final   c=HEADER,r=NONCE,p=PROOF
    server-final   v=SIGNATURE  or  e=ERROR

A client that authenticates by a delegation token (KIP-48) sends its id in place of the user, and the extension
``tokenauth=true``. Other extensions have no effect.

They are parsed by hand, field by field, and every field has a bound. A message with the reserved extension ``m=`` is
refused, as RFC 5802 demands. Channel binding is not supported: the header that says ``y`` or ``p=`` is refused.

Every parser raises ``BadScramMessage``.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

LONGEST_MESSAGE: Final = 8_192
"""Bytes of a message. The longest fields are names, of 1,000 characters."""
_LONGEST_NAME: Final = 3_000
_LONGEST_NONCE: Final = 256
_LONGEST_SALT: Final = 1_024
_LONGEST_PROOF: Final = 64
_LONGEST_NUMBER: Final = 10
_NONCE: Final = re.compile(rf"[\x21-\x2b\x2d-\x7e]{{1,{_LONGEST_NONCE}}}")
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^,\0]+")
_TOKEN_EXTENSION: Final = "tokenauth"
_MAX_SERVER_ERROR: Final = 200


class BadScramMessage(ValueError):
    """Bytes that are not the message that is due. The text says why, and contains nothing of them."""


class ClientFirst(NamedTuple):
    """The first message of a client."""

    authorization_id: str
    user: str
    nonce: str
    header: bytes
    """The channel binding header, which the final message repeats."""
    bare: bytes
    """What follows it, which is part of what is signed."""
    is_token: bool = False
    """Whether ``user`` is the id of a delegation token."""


class ServerFirst(NamedTuple):
    """The first message of a server."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The final message of a client."""

    header: bytes
    nonce: str
    proof: bytes
    without_proof: bytes


def encode_client_first(user: str, nonce: str, *, is_token: bool = False) -> tuple[bytes, bytes]:
    """Return the channel binding header and the bare message; the client sends one behind the other."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    extension = f",{_TOKEN_EXTENSION}=true" if is_token else ""
    return b"n,,", f"n={name},r={nonce}{extension}".encode()


def parse_client_first(message: bytes) -> ClientFirst:
    """Return the parts of the message."""
    flag, authorization_id, *fields = _fields(message, least=4)
    if flag != "n":
        raise BadScramMessage("channel binding is not supported")
    name, nonce, *extensions = fields
    if name.startswith("m="):
        raise BadScramMessage("a mandatory extension is not supported")
    if authorization_id:
        authorization_id = _name(_value(authorization_id, "a"))
    header_bytes = len(flag.encode()) + 1 + len(message.split(b",", 2)[1]) + 1
    _require_extensions(extensions)
    return ClientFirst(
        authorization_id=authorization_id,
        user=_name(_value(name, "n")),
        nonce=_nonce(nonce),
        header=message[:header_bytes],
        bare=message[header_bytes:],
        is_token=_says_token(extensions),
    )


def encode_server_first(nonce: str, salt: bytes, iterations: int) -> bytes:
    return f"r={nonce},s={_to_base64(salt)},i={iterations}".encode()


def parse_server_first(message: bytes) -> ServerFirst:
    """Return the parts. The number of iterations is the server's: the client bounds it before it computes."""
    nonce, salt, iterations, *extensions = _fields(message, least=3)
    if nonce.startswith("m="):
        raise BadScramMessage("a mandatory extension is not supported")
    _require_extensions(extensions)
    count = _value(iterations, "i")
    if not (count.isascii() and count.isdecimal() and len(count) <= _LONGEST_NUMBER):
        raise BadScramMessage("the number of iterations is not a number")
    return ServerFirst(_nonce(nonce), _from_base64(_value(salt, "s"), _LONGEST_SALT), int(count))


def encode_client_final_without_proof(header: bytes, nonce: str) -> bytes:
    return f"c={_to_base64(header)},r={nonce}".encode()


def encode_client_final(without_proof: bytes, proof: bytes) -> bytes:
    return without_proof + b",p=" + _to_base64(proof).encode()


def parse_client_final(message: bytes) -> ClientFinal:
    """Return the parts of the message."""
    header, nonce, *extensions, proof = _fields(message, least=3)
    _require_extensions(extensions)
    return ClientFinal(
        header=_from_base64(_value(header, "c"), _LONGEST_NAME),
        nonce=_nonce(nonce),
        proof=_from_base64(_value(proof, "p"), _LONGEST_PROOF),
        without_proof=message[: message.rindex(b",")],
    )


def encode_server_final(signature: bytes) -> bytes:
    return f"v={_to_base64(signature)}".encode()


def parse_server_final(message: bytes) -> bytes:
    """Return the signature. Raises ``BadScramMessage`` with the server's error if it sends one."""
    verdict, *extensions = _fields(message, least=1)
    if verdict.startswith("e="):
        raise BadScramMessage(f"the server refuses: {verdict[2:][:_MAX_SERVER_ERROR]}")
    _require_extensions(extensions)
    return _from_base64(_value(verdict, "v"), _LONGEST_PROOF)


def _fields(message: bytes, *, least: int) -> list[str]:
    if len(message) > LONGEST_MESSAGE:
        raise BadScramMessage("the message is too long")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise BadScramMessage("the message is not UTF-8") from None
    fields = text.split(",")
    if len(fields) < least:
        raise BadScramMessage("the message lacks a field")
    return fields


def _value(text: str, attribute: str) -> str:
    """Return what stands behind ``attribute=``."""
    if not text.startswith(f"{attribute}="):
        raise BadScramMessage(f"the message lacks the attribute {attribute} where it is due")
    return text[2:]


def _name(text: str) -> str:
    """Return a user's name, in which commas and equals signs are escaped."""
    if not text or "\0" in text or len(text) > _LONGEST_NAME:
        raise BadScramMessage("the name is empty, too long or contains NUL")
    if "=" in text.replace("=2C", "").replace("=3D", ""):
        raise BadScramMessage("the name has an equals sign that is not escaped")
    return text.replace("=2C", ",").replace("=3D", "=")


def _nonce(text: str) -> str:
    nonce = _value(text, "r")
    if not _NONCE.fullmatch(nonce):
        raise BadScramMessage("the nonce is empty, too long or not printable")
    return nonce


def _require_extensions(texts: list[str]) -> None:
    for text in texts:
        if not _EXTENSION.fullmatch(text) or text.startswith("m="):
            raise BadScramMessage("an extension is mandatory or malformed")


def _says_token(extensions: list[str]) -> bool:
    values = [value for key, _, value in (text.partition("=") for text in extensions) if key == _TOKEN_EXTENSION]
    if len(values) > 1:
        raise BadScramMessage(f"the extension {_TOKEN_EXTENSION} occurs twice")
    return bool(values) and values[0].lower() == "true"


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str, longest: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadScramMessage("a field is not base64") from None
    if not 0 < len(data) <= longest:
        raise BadScramMessage("a field is empty or too long")
    return data
