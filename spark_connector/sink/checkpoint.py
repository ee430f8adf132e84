"""Reads a query's checkpoint in the driver's Python: the query's id, and what a batch was planned from.

Spark writes ``metadata``, with the id, when the query is started first. It writes ``offsets/<batch>`` before a batch
runs: a line with the format's version, one of metadata (times, settings), and then one line for each source, where the
batch ends in it. A batch that is run again has the same file; one that was planned again under the same number has
another. Only a checkpoint on a local file system can be read here: Python has no part in Spark's access to others.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.spark_connector.stream_offset import REVISION

_LINES_BEFORE_SOURCES: Final = 2
_NO_OFFSET: Final = "-"
"""The line of a source without an offset yet."""
_LONGEST_TEXT: Final = 2000
"""Characters of offsets that are kept as text; they go into every record of the state topic."""


class BatchPlan(NamedTuple):
    """An entry of the offset log."""

    offsets: str = ""
    """The offsets at which the batch's sources end, or a digest of long ones; empty if the entry cannot be read."""
    time: str = ""
    """When Spark planned it, in milliseconds since the epoch; empty if the entry does not have it."""
    names_rows: bool = False
    """Whether these offsets determine the rows: those of topics do, while the number of a file list does not."""
    topics: frozenset[str] = frozenset()
    """The topics that the batch reads, without ``former_topics``."""
    former_topics: frozenset[str] = frozenset()
    """The topics in offsets of a former release, whose patterns matched more: the next batch may not read them."""
    entry: Path | None = None
    """The file that it was read from."""


def local_path(location: str) -> Path | None:
    """Return the directory of a ``checkpointLocation``; None if it is not on a local file system."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme.lower() != "file":
        return None
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest)


def read_query_id(location: str) -> str | None:
    """Return the id of the checkpoint's query; None if there is none, or it cannot be read."""
    path = local_path(location)
    if path is None:
        return None
    try:
        query = json.loads((path / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return query if isinstance(query, str) and query else None


def read_plan(location: str, batch: int | None = None) -> BatchPlan:
    """Return what a batch was planned from, as Spark has stored it; without ``batch``, the last planned batch."""
    path = local_path(location) if location else None
    if path is None:
        return BatchPlan()
    try:
        if batch is None:
            batch = max(int(each.name) for each in (path / "offsets").iterdir() if each.name.isdecimal())
        entry = path / "offsets" / str(batch)
        return plan_of(entry.read_text())._replace(entry=entry)
    except (OSError, ValueError):
        return BatchPlan()


def plan_of(entry: str) -> BatchPlan:
    """Parse an entry of the offset log. Pure."""
    lines = entry.splitlines()
    before, sources = lines[:_LINES_BEFORE_SOURCES], lines[_LINES_BEFORE_SOURCES:]
    time = _json(before[-1]).get("batchTimestampMs") if before else None
    ends = [_json(each) for each in sources if each != _NO_OFFSET]
    names_rows = bool(ends) and all(_names_rows(each) for each in ends)
    read = [each for each in ends if _names_rows(each)]
    former = frozenset(topic for each in read if _is_former(each) for topic in each["end"])
    topics = frozenset(
        topic for each in read if not _is_former(each) for topic in (each["end"] if "v" in each else each)
    )
    offsets = _shortened(" ".join(_without_revision(each) for each in sources))
    return BatchPlan(offsets, "" if time is None else str(time), names_rows, topics, former)


def _is_former(end: dict[str, Any]) -> bool:
    """Return whether a former release of this source wrote an offset."""
    return "v" in end and REVISION not in end


def _without_revision(source: str) -> str:
    """Return an offset as a former release wrote it: so a batch planned again after an upgrade has equal offsets."""
    end = _json(source)
    if "v" not in end or REVISION not in end:
        return source
    return json.dumps({name: each for name, each in end.items() if name != REVISION})


def _json(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for other text."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    return {}


def _names_rows(end: dict[str, Any]) -> bool:
    """Return whether it is an offset of topics: of this source (``stream_offset``), or of Spark's Kafka source."""
    if "v" in end:
        return isinstance(end.get("start"), dict) and isinstance(end.get("end"), dict)
    return bool(end) and all(
        isinstance(partitions, dict)
        and bool(partitions)
        and all(number.isdecimal() and isinstance(offset, int) for number, offset in partitions.items())
        for partitions in end.values()
    )


def _shortened(sources: str) -> str:
    if len(sources) <= _LONGEST_TEXT:
        return sources
    return f"sha256:{hashlib.sha256(sources.encode()).hexdigest()}"
