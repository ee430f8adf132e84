"""The messages of OAUTHBEARER (RFC 7628, KIP-255): a token in the client's first message, and what follows a bad one.

::

    n,[a=AUTHORIZATION ID],^Aauth=Bearer TOKEN^A[KEY=VALUE^A]…^A

A server that accepts the token sends an empty message. Otherwise it sends ``INVALID_TOKEN``, to which the client has
to respond with ``END_OF_CLIENT`` before the exchange fails. Everything is parsed by hand, with a bound on each part,
and no error contains what a client has sent.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

OAUTHBEARER: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
END_OF_CLIENT: Final = b"\x01"
MAX_TOKEN_BYTES: Final = 64 * 1024
"""Length of a token; those with the groups of a user have some 10 KiB."""

_END: Final = "\x01"
_LONGEST: Final = 128 * 1024
_MAX_ID_BYTES: Final = 1024
_MAX_EXTENSIONS: Final = 32
_MAX_VALUE_BYTES: Final = 4096
_AUTH: Final = "auth"
_SCHEME: Final = "bearer"
_KEY: Final = re.compile(r"[A-Za-z]{1,64}")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[-_.A-Za-z0-9]+")
_ESCAPE: Final = re.compile(r"=(2C|3D)?")
_ESCAPED: Final = {"2C": ",", "3D": "="}


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthMessage:
    """What a client sends first. Its text does not contain the token."""

    authorization_id: str
    """Empty: that of the token."""
    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)


class BadOauthMessage(ValueError):
    """Bytes that are not such a message. The text contains nothing of them."""


def is_token(text: str) -> bool:
    """Return whether a text can be a token in a message: the characters of a JWT, and not too many."""
    return len(text) <= MAX_TOKEN_BYTES and _TOKEN.fullmatch(text) is not None


def why_no_extension(key: str, value: str) -> str:
    """Return what is wrong with an extension; empty if nothing is."""
    if _KEY.fullmatch(key) is None or key == _AUTH:
        return f"the name of an extension is not valid: expected letters, at most 64, and not {_AUTH}"
    if len(value) > _MAX_VALUE_BYTES or _VALUE.fullmatch(value) is None:
        return f"the value of an extension is not valid: expected 1 to {_MAX_VALUE_BYTES} characters of ASCII"
    return ""


def encode_oauth_first(token: str, extensions: Mapping[str, str]) -> bytes:
    """Return the client's first message, without an authorization id: that of the token."""
    pairs = {_AUTH: f"Bearer {token}", **extensions}
    return f"n,,{_END}{''.join(f'{key}={value}{_END}' for key, value in pairs.items())}{_END}".encode()


def parse_oauth_first(message: bytes) -> OauthMessage:
    """Return the parts of the client's first message. Raises ``BadOauthMessage``."""
    if len(message) > _LONGEST:
        raise BadOauthMessage(f"it is longer than {_LONGEST} bytes")
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise BadOauthMessage("it is not ASCII") from None
    header, _, rest = text.partition(_END)
    binding, _, identity = header.partition(",")
    authorization_id, comma, after = identity.partition(",")
    if binding != "n" or not comma or after:
        raise BadOauthMessage("it does not begin with n,,")
    if not rest.endswith(_END + _END):
        raise BadOauthMessage("it does not end in two bytes 0x01")
    pairs = dict(_pairs(rest.removesuffix(_END + _END).split(_END)))
    auth = pairs.pop(_AUTH, "")
    return OauthMessage(authorization_id=_identity(authorization_id), token=_token(auth), extensions=pairs)


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    if len(parts) > _MAX_EXTENSIONS + 1:
        raise BadOauthMessage(f"it has more than {_MAX_EXTENSIONS} extensions")
    pairs: list[tuple[str, str]] = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise BadOauthMessage("it has a part without =")
        why = "" if key == _AUTH else why_no_extension(key, value)
        if why:
            raise BadOauthMessage(why)
        if any(key == other for other, _ in pairs):
            raise BadOauthMessage("it has a key twice")
        pairs.append((key, value))
    return pairs


def _identity(text: str) -> str:
    if not text:
        return ""
    if not text.startswith("a=") or len(text) > _MAX_ID_BYTES:
        raise BadOauthMessage("its authorization id is not of the form a=ID")
    if any(found[1] is None for found in _ESCAPE.finditer(text, 2)) or len(text) == 2:
        raise BadOauthMessage("its authorization id is not valid")
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text[2:])


def _token(auth: str) -> str:
    scheme, _, token = auth.partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != _SCHEME:
        raise BadOauthMessage("it has no auth=Bearer TOKEN")
    if not is_token(token):
        raise BadOauthMessage(f"its token is not one of at most {MAX_TOKEN_BYTES} letters, digits, -, _ and dots")
    return token
