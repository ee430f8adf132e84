"""``DataDirectory``: the directory of a broker's logs, and what it says about the broker and its last shutdown.

A broker locks the directory before it reads anything in it, and checks that it belongs to this broker and cluster
(``meta.properties``). The clean-shutdown mark says that all logs were closed properly: it is removed when the logs are
loaded and written last at a clean end. ``machine-boot`` says whether the machine may have lost power since, and
``intact-logs`` since when nothing was lost.
"""

import errno
from dataclasses import replace
from typing import Final

from oncelog.broker.storage import clean_shutdown
from oncelog.broker.storage.directory_identity import is_identity
from oncelog.broker.storage.disk import Disk, Lock
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.broker.storage.intact_logs import IntactLogs
from oncelog.broker.storage.machine_boot import note_boot, read_boot
from oncelog.broker.storage.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

LOCK_FILE: Final = ".lock"


class DataDirectory:
    """One data directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock: Lock | None = None
        self.path = path
        self.previous_broker_epoch: int | None = None
        """From the clean-shutdown mark; None if there was none, that is, after a crash or at the first start."""
        self.noted_boot: str | None = None
        """The boot of the machine that the directory named when it was opened; None if it named none."""
        self.is_boot_noted = False
        """Whether the directory names the present boot."""
        self.intact = IntactLogs(disk, path)
        """Since when the logs have lost nothing."""

    # The lock

    def lock(self) -> None:
        """Make the directory if it is missing, and lock it. Raise ``AlreadyLocked`` or ``OSError``."""
        self._make()
        self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")

    def _make(self) -> None:
        """Make the directory and sync the names of what was made, so that they outlive a loss of power."""
        if self._disk.exists(self.path) and not self._disk.is_dir(self.path):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", self.path)
        missing = [self.path]
        while not self._disk.exists(missing[-1]) and (parent := _parent(missing[-1])) != missing[-1]:
            missing.append(parent)
        self._disk.make_dirs(self.path)
        for directory in missing[1:]:
            self._disk.sync_dir(directory)

    def unlock(self) -> None:
        """Release the lock, as the end of the process would."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # The owner

    def claim(self, broker_id: int, cluster_id: str | None) -> None:
        """Write the owner into the directory. Raise ``InvalidMetaProperties`` if it belongs to another one."""
        found = read_meta_properties(self._disk, self.path)
        wanted = self.check_owner(broker_id, cluster_id)
        if wanted != found:
            write_meta_properties(self._disk, self.path, wanted)

    def check_owner(self, broker_id: int, cluster_id: str | None) -> MetaProperties:
        """Return what ``claim`` writes. Raise ``InvalidMetaProperties`` if the directory belongs to another owner."""
        found = read_meta_properties(self._disk, self.path)
        if found is not None:
            if found.broker_id not in (None, broker_id):
                raise InvalidMetaProperties(
                    f"{self.path} belongs to broker {found.broker_id}, not {broker_id}: start it with "
                    f"broker.id={found.broker_id} (--broker-id {found.broker_id}), or broker {broker_id} with a "
                    "directory of its own, log.dirs (--data-dir)"
                )
            if None not in (found.cluster_id, cluster_id) and found.cluster_id != cluster_id:
                raise InvalidMetaProperties(
                    f"{self.path} belongs to cluster {found.cluster_id}, not {cluster_id}: the address or the chroot "
                    "in zookeeper.connect (--zookeeper) is not that of its cluster, or ZooKeeper has lost its data, or "
                    "log.dirs (--data-dir) is not this broker's directory"
                )
            cluster_id = cluster_id or found.cluster_id
        wanted = MetaProperties(broker_id=broker_id, cluster_id=cluster_id)
        if found is not None:
            wanted = replace(found, broker_id=broker_id, cluster_id=cluster_id)
        return wanted

    # The last shutdown

    def open(self) -> None:
        """Read how the last process ended, and remove the clean-shutdown mark. Raise ``OSError``."""
        self.previous_broker_epoch = clean_shutdown.read_mark(self._disk, self.path)
        self.intact.open(self.previous_broker_epoch, is_new=read_meta_properties(self._disk, self.path) is None)
        if self.previous_broker_epoch is not None:
            clean_shutdown.remove_mark(self._disk, self.path)
        self.noted_boot = read_boot(self._disk, self.path)

    @property
    def was_closed_cleanly(self) -> bool:
        """Whether there was a clean-shutdown mark when the directory was opened."""
        return self.previous_broker_epoch is not None

    @property
    def power_held(self) -> bool:
        """Whether nothing says that the machine has stopped since the directory was written."""
        return self.noted_boot is None or is_identity(self.noted_boot, self._disk.identity(self.path))

    def note_boot(self) -> None:
        """Write the present boot into the directory. A full disk leaves it for the next call."""
        try:
            note_boot(self._disk, self.path)
            self.is_boot_noted = True
        except OSError as error:
            if not is_transient(error):
                raise

    def close_cleanly(self, broker_epoch: int) -> None:
        """Write the clean-shutdown mark, with the epoch of the registration (-1: none). Raise ``OSError``."""
        self.note_boot()
        clean_shutdown.write_mark(self._disk, self.path, self.intact.mark_epoch(broker_epoch))


def _parent(path: str) -> str:
    head, separator, _ = path.rstrip("/").rpartition("/")
    return head or separator or "."
