"""The file that keeps a process's slots: the next process that locks it uses the same name.

The files are in the directory of temporary files, one for each process that runs at a time. The lock is the kernel's,
and ends with the process. The name is in the file, so the name of a deleted file is not used again; a file that cannot
be read, or was written on another machine or before the machine's last start, gets a new name. If files cannot be used,
every process has a new name.
"""

import fcntl
import json
import logging
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

_log = logging.getLogger(__name__)

_MOST_PROCESSES: Final = 4096
_MOST_BYTES: Final = 16 * 1024 * 1024
_PROCESS_BITS: Final = 64
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def new_name(rng: Random) -> str:
    """Return a random name for a process: no other one has it."""
    return f"{rng.getrandbits(_PROCESS_BITS):016x}"


class SlotFile:
    """A file that this process alone has locked, until it ends."""

    def __init__(self, path: Path, descriptor: int, machine: str, rng: Random) -> None:
        self._path = path
        self._descriptor = descriptor
        self._machine = machine
        self.process, self.kept = self._read() or (new_name(rng), "")
        self.keep(self.kept)

    def _read(self) -> tuple[str, str] | None:
        try:
            fields = json.loads(os.pread(self._descriptor, _MOST_BYTES, 0))
            if fields["machine"] != self._machine:
                return None
            return str(fields["process"]), str(fields["slots"])
        except (ValueError, KeyError, TypeError):
            return None

    def keep(self, slots: str) -> None:
        """Replace the state for a later process. If that fails, no later process gets this name."""
        fields = {"machine": self._machine, "process": self.process, "slots": slots}
        content = json.dumps(fields).encode()
        try:
            if os.pwrite(self._descriptor, content, 0) < len(content):
                raise OSError(f"{self._path} is not written to its end")
            os.ftruncate(self._descriptor, len(content))
        except OSError as error:
            _log.warning("transactional ids of this process are not used again: %s", error)
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            with suppress(OSError):
                self._path.unlink()

    def release(self) -> None:
        """Release the lock for another process; the kernel does it at the end of this one."""
        os.close(self._descriptor)


def claim_slot_file(cluster: str, rng: Random, directory: Path | None = None) -> SlotFile | None:
    """Lock the first free file for a cluster; None if files cannot be used."""
    machine = _machine()
    if not machine:
        return None
    try:
        directory = directory or Path(tempfile.gettempdir()) / f"oncelog-sink-{os.geteuid()}"
        _make_private(directory)
        for number in range(_MOST_PROCESSES):
            path = directory / f"{cluster}-{number}"
            descriptor = _locked(path)
            if descriptor is not None:
                return SlotFile(path, descriptor, machine, rng)
    except OSError as error:
        _log.warning("transactional ids of this process are not used again: %s", error)
    return None


def _machine() -> str:
    """Return the host name and the id of its last start; empty if unknown. Files of others are not used."""
    try:
        return f"{_BOOT_ID.read_text().strip()} {socket.gethostname()}"
    except OSError:
        return ""


def _make_private(directory: Path) -> None:
    """Make the directory. Raises ``OSError`` if other users can write into it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} is not this user's alone")


def _locked(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
