"""``.kafka_cleanshutdown``: the mark that all logs of a data directory were closed properly.

It is written last at shutdown and removed first at start, so that after any crash it is not there. Its content is JSON:
a version and the broker epoch with which the broker was last registered (-1 if it has none).
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


def read_mark(disk: Disk, log_dir: str) -> int | None:
    """Return the broker epoch of the mark (``NO_BROKER_EPOCH`` if it has none); None if there is no mark."""
    path = f"{log_dir}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        return int(json.loads(disk.read(path))["brokerEpoch"])
    except (ValueError, TypeError, KeyError):
        return NO_BROKER_EPOCH


def remove_mark(disk: Disk, log_dir: str) -> None:
    """Remove the mark, which exists, for good."""
    disk.remove(f"{log_dir}/{FILE_NAME}")
    disk.sync_dir(log_dir)
