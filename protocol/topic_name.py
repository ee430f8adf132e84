"""Which names a topic may have.

Apache Kafka's rules: 1 to 249 of the characters a-z, A-Z, 0-9, dot, underscore and hyphen, but neither "." nor "..".
Names that differ only in dots and underscores collide, because the names of metrics do not distinguish them. One name
is reserved: that of KRaft's metadata log, which tools and other brokers take for Kafka's own.
"""

import re
from typing import Final

MAX_LENGTH: Final = 249
CLUSTER_METADATA_TOPIC_NAME: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def why_invalid(name: str) -> str | None:
    """Return the reason why no topic can have this name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def unified(name: str) -> str:
    """Return the form in which colliding names are equal."""
    return name.replace(".", "_")
