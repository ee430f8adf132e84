"""What identifies a directory while the machine runs. A copy has another identity, and so has all after a reboot."""

import fcntl
import os
import sys
from typing import Final

UNKNOWN_BOOT: Final = "-"
"""What an identity begins with if the machine cannot name its boot."""
_GET_GENERATION: Final = 0x80087601
"""FS_IOC_GETVERSION of Linux."""


def identity_of(path: str) -> str:
    """Return the identity of a directory: the boot, the device, and the number and generation of the inode."""
    status = os.stat(path)
    return f"{_boot_id()} {status.st_dev:x}:{status.st_ino:x}.{_generation(path):x}"


def is_identity(noted: str, present: str) -> bool:
    """Return whether an identity that was noted is that of the present directory; earlier releases noted its start."""
    return bool(noted) and noted in (present, present.rpartition(".")[0])


def _generation(path: str) -> int:
    """Return what distinguishes a directory from a former one with its inode number; 0 where the file system does not.

    That number is given away again at once: to a copy that is made where the original was.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _GET_GENERATION, bytes(8))[:4], sys.byteorder)
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def _boot_id() -> str:
    """Return what is another one after each start of the machine; ``UNKNOWN_BOOT`` on systems other than Linux."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return UNKNOWN_BOOT
