"""``.kafka_cleanshutdown``: the mark that all logs of a data directory were closed properly.

It is written last at shutdown and removed first at start, so that after any crash it is not there. Its content is JSON:
a version and the broker epoch with which the broker was registered (-1 if it has none).
"""

import json
from typing import Final

from oncelog.broker.storage.disk import Disk

FILE_NAME: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1
_VERSION: Final = 0


def write_mark(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomic(f"{log_dir}/{FILE_NAME}", content.encode())


def take_mark(disk: Disk, log_dir: str) -> int | None:
    """Remove the mark. Return its broker epoch (``NO_BROKER_EPOCH`` if it has none); None if there was no mark."""
    path = f"{log_dir}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    data = disk.read(path)
    disk.remove(path)
    disk.sync_dir(log_dir)
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, TypeError, KeyError):
        return NO_BROKER_EPOCH
