"""The one message of PLAIN (RFC 4616): authorization id, user name and password, separated by NUL."""

from typing import NamedTuple


class PlainMessage(NamedTuple):
    """What a client sends."""

    authorization_id: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


class BadPlainMessage(ValueError):
    """Bytes that are not such a message. The text is for the client."""


def encode_plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def parse_plain(token: bytes) -> PlainMessage:
    """Return the parts of a message. Raises ``BadPlainMessage``."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise BadPlainMessage("Invalid SASL/PLAIN response: expected UTF-8") from None
    if len(parts) != len(PlainMessage._fields):
        raise BadPlainMessage(
            f"Invalid SASL/PLAIN response: expected {len(PlainMessage._fields)} tokens, got {len(parts)}"
        )
    message = PlainMessage(*parts)
    if not message.user:
        raise BadPlainMessage("Authentication failed: username not specified")
    if not message.password:
        raise BadPlainMessage("Authentication failed: password not specified")
    return message
