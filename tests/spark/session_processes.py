"""The processes of one Spark driver: all are in one session of the kernel, and their command lines say their roles."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_ROLES: Final = {
    "pyspark.sql.worker.write_into_data_source": "planner",
    "pyspark.sql.worker.python_streaming_sink_runner": "committer",
    "pyspark.sql.streaming.python_streaming_source_runner": "source",
    "pyspark.worker": "task",
}
"""By the last word of the command. The processes of a pool are forked by a daemon with the same command."""
_DAEMON: Final = "pyspark.daemon"


class Member(NamedTuple):
    """A process that is alive."""

    pid: int
    parent: int
    name: str
    words: tuple[str, ...]

    @property
    def role(self) -> str:
        """What it is to Spark: driver, task, planner, committer, source, or other."""
        if self.name == "java":
            return "driver"
        return _ROLES.get(self.words[-1], "other") if self.words else "other"


def members(session: int) -> dict[int, Member]:
    """Every process of a session that is alive, by id."""
    return {each.pid: each for each in _alive(session)}


def _alive(session: int) -> Iterator[Member]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                words = (stat.parent / "cmdline").read_bytes().decode(errors="replace").split("\0")
                yield Member(int(stat.parent.name), int(fields[1]), name, tuple(filter(None, words)))


def by_role(session: int) -> dict[str, list[int]]:
    """Process ids; a daemon, whose children are of a role, is of the role ``daemon``."""
    alive = members(session)
    found: dict[str, list[int]] = {}
    for each in alive.values():
        is_daemon = _DAEMON in each.words and alive.get(each.parent) is not None and alive[each.parent].name == "java"
        found.setdefault("daemon" if is_daemon else each.role, []).append(each.pid)
    return {role: sorted(pids) for role, pids in found.items()}


def kill(*pids: int) -> None:
    """kill -9, where they live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
