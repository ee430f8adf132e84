"""``intact-logs`` in the data directory: since which broker epoch its logs have lost nothing.

A process that is killed loses nothing that it has written: the page cache belongs to the machine. A machine that stops
may lose what was not synced. The file holds two broker epochs and the identity of the directory: in the incarnations
from the first epoch to the second, nothing was lost, and they ran in the boot and in the directory of that identity.
It counts at the next start if the logs were closed properly since, or if the identity is still the same. A copy of the
directory has another identity; a copy that was closed properly and is restored later ends with an older second epoch
than the broker has had, which the controller notices. A machine that cannot name its boot has no identity to compare:
its logs count as intact only after a clean shutdown.

After a clean shutdown the recovery points on disk are the ends of all logs. The start that removes the mark of it notes
in this file that they still are, until the broker is registered and something may be appended: so a start that is
killed before it has compared them leaves that to the next one.

The file is removed before anything that was found damaged is cut off, and when a log fails; so damage is not forgotten
in a crash that follows. Without the file the logs count as damaged: in a new or emptied directory, after an earlier
release, after a loss of power.
"""

from logging import getLogger
from typing import Final, NamedTuple

from oncelog.broker.storage.clean_shutdown import NO_BROKER_EPOCH
from oncelog.broker.storage.disk import UNKNOWN_BOOT, Disk
from oncelog.broker.storage.disk_errors import is_transient

FILE_NAME: Final = "intact-logs"
_ENDS_ARE_NOTED: Final = "recovery points are log ends"

_log = getLogger(__name__)


class IntactEpochs(NamedTuple):
    """The incarnations of a broker in which its logs have lost nothing."""

    since: int
    """The first broker epoch."""
    until: int
    """The last broker epoch."""


class IntactLogs:
    """What the data directory says, and the file that says it."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._path = f"{log_dir}/{FILE_NAME}"
        self.epochs: IntactEpochs | None = None
        """None: the logs may have lost something before the present registration."""
        self.ends_are_noted = False
        """Whether the recovery points on disk are the ends that the logs had at a clean shutdown."""
        self._is_unwritten = False
        """Whether there was no room for the present epochs."""

    def open(self, mark_epoch: int | None) -> None:
        """Read the file, given the broker epoch of the clean-shutdown mark (None: there is none). Raise ``OSError``."""
        self.ends_are_noted = mark_epoch is not None
        noted, identity, ends_are_noted = self._read()
        if noted is None:
            return
        closed_cleanly = mark_epoch == noted.until  # Else a release without this file ran since.
        if not closed_cleanly and (mark_epoch is not None or not self._is_here(identity)):
            self.note_damage("the machine may have lost power, or this is a copy of the data directory")
            return
        self.ends_are_noted |= ends_are_noted
        self._write(noted)  # Before the mark goes: it counts in this boot, too.
        self.epochs = noted

    def _is_here(self, identity: str) -> bool:
        """Return whether the file was written in this boot and directory."""
        present = self._disk.identity(self._log_dir)
        return identity == present and not present.startswith(UNKNOWN_BOOT)

    def _read(self) -> tuple[IntactEpochs | None, str, bool]:
        """Return the epochs, the identity, and whether the ends of the logs are noted."""
        if not self._disk.exists(self._path):
            return None, "", False
        first, _, second = self._disk.read(self._path).decode("ascii", "replace").strip().partition("\n")
        since, _, rest = first.partition(" ")
        until, _, identity = rest.partition(" ")
        if not (since.isdecimal() and until.isdecimal()):
            return None, "", False
        return IntactEpochs(int(since), int(until)), identity, second == _ENDS_ARE_NOTED

    @property
    def since(self) -> int | None:
        """The first broker epoch since which nothing was lost; None if there is none before the next registration."""
        return None if self.epochs is None else self.epochs.since

    @property
    def until(self) -> int | None:
        """The last broker epoch that the directory has seen; None without a first one."""
        return None if self.epochs is None else self.epochs.until

    async def note_registration(self, broker_epoch: int) -> None:
        """Note that the broker is registered with a new epoch. A full disk keeps what was noted before.

        Then ``note_again`` must be called until it succeeds. Raise ``OSError``.
        """
        epochs = self.epochs = IntactEpochs(broker_epoch if self.epochs is None else self.epochs.since, broker_epoch)
        self._is_unwritten = self.ends_are_noted = False
        try:
            await self._disk.write_atomic_off_loop(self._path, self._content(epochs))
        except OSError as error:
            if not is_transient(error):
                raise
            self._is_unwritten = self.epochs is epochs
        if self.epochs is not epochs:  # A log has failed meanwhile.
            self.note_damage("a log failed")

    def note_again(self) -> None:
        """Write what there was no room for. Raise ``OSError``."""
        if self._is_unwritten and self.epochs is not None:
            self._disk.write_atomic(self._path, self._content(self.epochs))
        self._is_unwritten = False

    def mark_epoch(self, broker_epoch: int) -> int:
        """Return the epoch for the clean-shutdown mark of this incarnation; ``broker_epoch``: -1 if it has none.

        One that was never registered passes on that of the last one that was, which tells it from one of a release
        without this file.
        """
        return self.epochs.until if broker_epoch == NO_BROKER_EPOCH and self.epochs is not None else broker_epoch

    def note_damage(self, reason: str) -> None:
        """Forget that the logs are intact. A disk that fails may keep the file."""
        if self.epochs is None and not self._disk.exists(self._path):
            return
        _log.warning("%s: acknowledged records may be missing: %s", self._log_dir, reason)
        self.epochs = None
        try:
            self._disk.remove(self._path)
            self._disk.sync_dir(self._log_dir)
        except OSError as error:
            _log.error("%s cannot be removed: %s", self._path, error)

    def _write(self, epochs: IntactEpochs) -> None:
        content = self._content(epochs)
        try:
            if self._disk.read(self._path) != content:
                self._disk.write_atomic(self._path, content)
        except OSError as error:
            if not is_transient(error):
                raise

    def _content(self, epochs: IntactEpochs) -> bytes:
        lines = [f"{epochs.since} {epochs.until} {self._disk.identity(self._log_dir)}"]
        if self.ends_are_noted:
            lines.append(_ENDS_ARE_NOTED)
        return "".join(f"{line}\n" for line in lines).encode()
