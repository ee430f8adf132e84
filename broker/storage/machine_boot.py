"""``machine-boot`` in the data directory: the boot of the machine in which its files were written.

A process that is killed loses nothing that it had written; a machine that stops may lose the end of a segment and keep
the next segment. So a gap between the segments of a compacted log is what compaction left, unless the machine has
started since the directory was written. The file says in which boot that was. Earlier releases and Apache Kafka
write none: of their directories a gap is taken for compaction's, as Apache Kafka takes it.
"""

from typing import Final

from oncelog.broker.storage.disk import Disk

BOOT_FILE: Final = "machine-boot"


def read_boot(disk: Disk, log_dir: str) -> str | None:
    """Return the boot that the directory names; None if it names none."""
    path = f"{log_dir}/{BOOT_FILE}"
    return disk.read(path).decode("ascii", "replace").strip() if disk.exists(path) else None


def note_boot(disk: Disk, log_dir: str) -> None:
    """Note that from now on files of this directory are written in this boot."""
    present = disk.identity(log_dir)
    if read_boot(disk, log_dir) != present:
        disk.write_atomic(f"{log_dir}/{BOOT_FILE}", f"{present}\n".encode())
