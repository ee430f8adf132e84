"""The page ``docs/how-to/secure-a-running-cluster.md`` as steps that a program can follow.

A section has blocks of commands (``sh``) and of brokers' settings (``properties``), in the order in which they are to
be done. Its hosts, ports and directories are examples, and are replaced by those of the cluster that follows the page.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.properties import parse_properties
from tests.processes import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "how-to" / "secure-a-running-cluster.md"
EXAMPLE_HOST: Final = "broker1.example"
"""The host of the broker whose settings the page shows."""
_SECTION: Final = re.compile(r"^## (?:\d+\. )?(.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(sh|properties)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REMOVED: Final = re.compile(r"^Remove the line `([^`]+)`", re.MULTILINE)
_PASSWORD: Final = re.compile(r"\b([A-Z]+)_PASSWORD\b")


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for a shell."""

    text: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings to add to those of each broker, or to change; passwords and places are still those of the page."""

    values: Mapping[str, str]
    removed: frozenset[str] = frozenset()
    """The keys of those that are to be removed."""


def read_how_to() -> dict[str, list[Commands | Settings]]:
    """Return the blocks of each section of the page, by the section's title."""
    _, *parts = _SECTION.split(PAGE.read_text())
    return {title: list(_blocks(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def _blocks(section: str) -> Iterator[Commands | Settings]:
    removed = frozenset(_REMOVED.findall(section))
    for kind, text in _BLOCK.findall(section):
        yield Commands(text) if kind == "sh" else Settings(parse_properties(text), removed)


def with_passwords(text: str, passwords: Mapping[str, str]) -> str:
    """Return a value with the password of each user in place of ``USER_PASSWORD``."""
    return _PASSWORD.sub(lambda match: passwords[match[1].lower()], text)


def with_places(text: str, places: Mapping[str, str]) -> str:
    """Return a text with other places than those of the page; longer ones are replaced first."""
    for example in sorted(places, key=len, reverse=True):
        text = text.replace(example, places[example])
    return text
