"""``zookeeper-session`` in the data directory: by what a broker that starts again ends the session that it left.

A killed broker leaves its session, and with it its registration, behind. When it starts again it takes that session
over and ends it, so that it can register at once. That is right only if the process that had the session has ended. The
lock on the data directory proves it for this directory, and for no copy of it. So the file names the directory that it
was written in, and the boot of the machine: in a copy, on this machine or another one, and after a reboot, the session
is left to expire. The same holds for a file of an earlier release, which names neither.

A start that may still be refused does not write it: the directory may be that of another broker or cluster, and a
session without a registration holds nothing up. ``keep`` writes it just before the broker registers.

The first line is the session's id and its password, in hexadecimal digits; the second one is the directory.
"""

import logging
from functools import partial
from typing import Final

from oncelog.broker.storage.directory_identity import is_identity
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.coordinator.metadata_store.store import MetadataStore, Session, SessionEvent
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials

logger = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper-session"


class SessionFile:
    """The file of one data directory, which this process has locked."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._path = f"{data_dir}/{SESSION_FILE}"

    def read(self) -> SessionCredentials | None:
        """Return the credentials of a session that a process which has ended has left; None if there is no proof."""
        if not self._disk.exists(self._path):
            return None
        credentials, _, written_in = self._disk.read(self._path).decode("ascii", "replace").partition("\n")
        found = parse_credentials(credentials)
        if found is None:
            logger.warning("%s cannot be understood: the session before this one is left to expire", self._path)
        elif not is_identity(written_in.strip(), self._disk.identity(self._data_dir)):
            logger.warning(
                "%s was not written in this directory since the machine started, so session %#x may be that of a live "
                "broker: it is left to expire",
                self._path,
                found.session_id,
            )
            return None
        return found

    def keep(self, store: MetadataStore) -> None:
        """Write the credentials of the store's session, and of each that follows it.

        A session that cannot be written, on a full disk, is left to expire if this process is killed.
        """
        self._try_to_write(store.credentials)
        store.add_session_listener(partial(self._on_session, store))

    def _on_session(self, store: MetadataStore, event: SessionEvent, session: Session) -> None:
        if event is SessionEvent.STARTED:
            self._try_to_write(store.credentials)

    def _try_to_write(self, credentials: SessionCredentials | None) -> None:
        try:
            self.write(credentials)
        except OSError as error:
            if not is_transient(error):
                raise
            logger.warning(
                "%s cannot be written: %s. If this broker is killed its next start waits until its session expires",
                self._path,
                error,
            )

    def write(self, credentials: SessionCredentials | None) -> None:
        if credentials is not None:
            content = f"{credentials.session_id:x} {credentials.password.hex()}\n"
            content += f"{self._disk.identity(self._data_dir)}\n"
            self._disk.write_atomic(self._path, content.encode())


def parse_credentials(line: str) -> SessionCredentials | None:
    """Parse the first line of the file; None if it is none."""
    session_id, _, password = line.strip().partition(" ")
    try:
        return SessionCredentials(int(session_id, 16), bytes.fromhex(password))
    except ValueError:
        return None
