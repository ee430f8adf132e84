"""Why a broker of a cluster starts slowly: what its log says last, if that is a warning."""

import os
import re
from pathlib import Path
from typing import Final

from oncelog.broker.local_cluster.control_socket import MemberStatus

_TAIL_BYTES: Final = 4000
_WARNING: Final = re.compile(r"\[[^]]*\] (?:WARNING|ERROR) (.*) \([\w.]+\)")
_USUAL: Final = (
    "a broker serves when there is a controller; if the last one was killed, another is elected when its ZooKeeper "
    "session ends, after up to 10 s (zookeeper.session.timeout.ms)"
)


def about_slow_start(status: MemberStatus) -> str:
    """Return what a process that is being started waits for."""
    warning = _WARNING.fullmatch(_last_line(Path(status.log)))
    reason = _USUAL if warning is None else warning[1]
    return f"Note: {status.member} is still starting: {reason}; its log is {os.path.relpath(status.log)}"


def _last_line(log: Path) -> str:
    """Return the last line of a log; an empty one if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
