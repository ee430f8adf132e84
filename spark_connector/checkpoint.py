"""A query's checkpoint, as the driver's Python can read it: the query's id, and what a batch was planned from.

Spark writes ``metadata``, with the id, when the query is started first. It writes ``offsets/<batch>`` before a batch
runs: a line with the format's version, one of metadata (times, settings), and then one line for each source, where the
batch ends in it. A batch that is run again has the same file; one that was planned anew under the same number has
another. Only a checkpoint on a local file system can be read here: Python has no part in Spark's access to others.
"""

import hashlib
import json
from pathlib import Path
from typing import Final

_LINES_BEFORE_SOURCES: Final = 2
_LONGEST_TEXT: Final = 2000
"""Characters of offsets that are kept as they are; they go into every record of a batch."""


def local_path(location: str) -> Path | None:
    """The directory of a ``checkpointLocation``; None if it is on another file system than this machine's."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme.lower() != "file":
        return None
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest)


def read_query_id(location: str) -> str | None:
    """The id of the query whose checkpoint it is; None if there is none, or it cannot be read."""
    path = local_path(location)
    if path is None:
        return None
    try:
        query = json.loads((path / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return query if isinstance(query, str) and query else None


def read_offsets(location: str, batch: int) -> str:
    """Where the sources of a batch end, as Spark has written it; empty if that cannot be read."""
    path = local_path(location)
    if path is None:
        return ""
    try:
        return sources_of((path / "offsets" / str(batch)).read_text())
    except (OSError, UnicodeDecodeError):
        return ""


def sources_of(offsets: str) -> str:
    """The sources' lines of an entry of the offset log, or a digest of them where they are long. Pure."""
    sources = " ".join(offsets.splitlines()[_LINES_BEFORE_SOURCES:])
    if len(sources) <= _LONGEST_TEXT:
        return sources
    return f"sha256:{hashlib.sha256(sources.encode()).hexdigest()}"
