"""``Principal``: the identity of a client, as access control lists and delegation tokens name it."""

from typing import Final, NamedTuple

USER: Final = "User"
"""The type of every principal that authentication finds."""


class Principal(NamedTuple):
    """A type and a name: ``User:alice``."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Return the principal of a text of the form ``type:name``. Raises ``ValueError``."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise ValueError(f"not of the form TYPE:NAME: {text[:200]!r}")
    return Principal(kind, name)
