"""``intact-logs`` in the data directory: since which broker epoch its logs have lost nothing.

A process that is killed loses nothing that it has written: the page cache belongs to the machine. A machine that stops
may lose what was not synced. The file holds two broker epochs and the identity of the directory: in the incarnations
from the first epoch to the second, nothing was lost, and they ran in the boot and in the directory of that identity.
It counts at the next start if the logs were closed properly since, or if the identity is still the same. A copy of the
directory has another identity; a copy that was closed properly and is restored later ends with an older second epoch
than the broker has had, which the controller notices. A machine that cannot name its boot has no identity to compare:
its logs count as intact only after a clean shutdown.

A registration may have been made although its response was lost, or the process was killed before it could write the
epoch down. So the sessions in which the broker tries to register are written first, and the metadata store says in
which session it was registered last (``begin_registration``). An epoch of one of those sessions is its own. Any other
one that is newer than the second epoch is that of another directory: this one lacks what was written to that one, and
has lost nothing of what it had. So its epochs end there, and others begin with the next registration.

After a clean shutdown the recovery points on disk are the ends of all logs. The start that removes the mark of it notes
in this file that they still are, until the broker is registered and something may be appended: so a start that is
killed before it has compared them leaves that to the next one.

The file is removed before anything that was found damaged is cut off, and when a log fails; so damage is not forgotten
in a crash that follows. Without the file the logs count as damaged: in a new or emptied directory, after an earlier
release, after a loss of power.

A full disk has no room for a new file, and a broker on it may be killed again and again. Then the file is overwritten:
it is as long as a whole sector, so that this needs no room and is not torn.
"""

from logging import getLogger
from typing import Final, NamedTuple

from oncelog.broker.storage.directory_identity import UNKNOWN_BOOT, is_identity
from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.disk_errors import is_out_of_space, is_transient

FILE_NAME: Final = "intact-logs"
_ENDS_ARE_NOTED: Final = "recovery points are log ends"
_SESSIONS: Final = "sessions"
_EARLIER: Final = "earlier"
_ENDED: Final = "ended"
_MOST_SESSIONS: Final = 100
"""More sessions than that cannot all be in doubt: a later one begins when the one before it has ended."""
_MOST_EARLIER: Final = 20
_REMEDY: Final = ". If that directory still exists, stop the broker and start it with that one: log.dirs (--data-dir)"
_SECTOR: Final = 512
"""Bytes that a disk writes at once."""

_log = getLogger(__name__)


class IntactEpochs(NamedTuple):
    """The incarnations of a broker in which its logs have lost nothing."""

    since: int
    """The first broker epoch."""
    until: int
    """The last broker epoch."""


class _Noted(NamedTuple):
    """What the file says."""

    epochs: IntactEpochs
    identity: str
    earlier: tuple[IntactEpochs, ...]
    sessions: tuple[int, ...]
    have_ended: bool
    """Whether another directory was registered after the epochs."""
    ends_are_noted: bool


class IntactLogs:
    """What the data directory says, and the file that says it."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._path = f"{log_dir}/{FILE_NAME}"
        self.epochs: IntactEpochs | None = None
        """Those that go on. None: the logs lack something before the present registration."""
        self.earlier: tuple[IntactEpochs, ...] = ()
        """Those that ended when another directory was registered; in order, the 20 latest."""
        self.ends_are_noted = False
        """Whether the recovery points on disk are the ends that the logs had at a clean shutdown."""
        self._sessions: tuple[int, ...] = ()
        """In which the broker has tried to register since the last epoch that is known."""
        self._is_unwritten = False
        """Whether there was no room for the present epochs."""
        self._is_new = False
        """Whether the directory belonged to no broker when it was opened, until the broker begins to register."""
        self._is_registering = False
        self._failed_meanwhile = False
        """Whether damage was noted since the registration began, which does not say so."""

    def open(self, mark_epoch: int | None, *, is_new: bool = False) -> None:
        """Read the file, given the broker epoch of the clean-shutdown mark (None: there is none). Raise ``OSError``.

        ``is_new``: whether the directory belongs to no broker yet.
        """
        self._is_new = is_new
        self.ends_are_noted = mark_epoch is not None
        noted = self._read()
        if noted is None:
            return
        closed_cleanly = mark_epoch == noted.epochs.until  # Else a release without this file ran since.
        if not closed_cleanly and (mark_epoch is not None or not self._is_here(noted.identity)):
            self.note_damage("the machine may have lost power, or this is a copy of the data directory")
            return
        self.ends_are_noted |= noted.ends_are_noted
        self._sessions = noted.sessions
        self.earlier = (*noted.earlier, noted.epochs) if noted.have_ended else noted.earlier
        self.epochs = None if noted.have_ended else noted.epochs
        self._write()  # Before the mark goes: it counts in this boot, too.

    def _is_here(self, identity: str) -> bool:
        """Return whether the file was written in this boot and directory."""
        present = self._disk.identity(self._log_dir)
        return is_identity(identity, present) and not present.startswith(UNKNOWN_BOOT)

    def _read(self) -> _Noted | None:
        if not self._disk.exists(self._path):
            return None
        first, *others = self._disk.read(self._path).decode("ascii", "replace").strip().split("\n")
        since, _, rest = first.partition(" ")
        until, _, identity = rest.partition(" ")
        lines = {word: rest.split() for word, _, rest in (line.partition(" ") for line in others)}
        try:
            return _Noted(
                IntactEpochs(int(since), int(until)),
                identity,
                earlier=tuple(_parse_epochs(text) for text in lines.get(_EARLIER, ())),
                sessions=tuple(int(session, 16) for session in lines.get(_SESSIONS, ())),
                have_ended=_ENDED in others,
                ends_are_noted=_ENDS_ARE_NOTED in others,
            )
        except ValueError:
            return None

    @property
    def since(self) -> int | None:
        """The first broker epoch since which nothing was lost; None if there is none before the next registration."""
        return None if self.epochs is None else self.epochs.since

    @property
    def until(self) -> int | None:
        """The last broker epoch that the directory has seen; None without a first one."""
        return None if self.epochs is None else self.epochs.until

    @property
    def _latest(self) -> IntactEpochs | None:
        """The present epochs, or the last ones; None after damage."""
        return self.epochs or (self.earlier[-1] if self.earlier else None)

    async def begin_registration(self, session_id: int, last: tuple[int, int] | None) -> None:
        """Note that the broker is about to register in a session. Raise ``OSError``.

        ``last``: session and broker epoch of the last registration of this broker id; None if there is none.
        """
        self._is_registering, self._failed_meanwhile, latest = True, False, self._latest
        is_new, self._is_new = self._is_new, False
        if latest is None:
            if is_new and last is not None:
                _log.warning(
                    "%s is a new data directory, and this broker id was registered before with another one (broker "
                    "epoch %d): what was written there is missing here%s",
                    self._log_dir,
                    last[1],
                    _REMEDY,
                )
            return
        if last is not None and last[1] > latest.until:
            last_session, last_epoch = last
            if last_session in self._sessions:
                self.epochs = IntactEpochs(last_epoch if self.epochs is None else self.epochs.since, last_epoch)
            elif self.epochs is not None:
                _log.warning(
                    "%s: broker epoch %d is that of another data directory: what was written there is missing here%s",
                    self._log_dir,
                    last_epoch,
                    _REMEDY,
                )
                self.earlier, self.epochs = (*self.earlier, self.epochs)[-_MOST_EARLIER:], None
        self._sessions = (*(each for each in self._sessions if each != session_id), session_id)[-_MOST_SESSIONS:]
        await self._write_off_loop()

    async def note_registration(self, broker_epoch: int) -> None:
        """Note that the broker is registered with a new epoch. Without room, what was noted before is kept.

        Then ``note_again`` must be called until it succeeds. Raise ``OSError``.
        """
        self._is_registering = False
        if self._failed_meanwhile:
            return
        self.epochs = IntactEpochs(broker_epoch if self.epochs is None else self.epochs.since, broker_epoch)
        self._sessions = self._sessions[-1:]  # A tool may write the znode again that names it.
        self.ends_are_noted = False
        await self._write_off_loop()

    async def _write_off_loop(self) -> None:
        self._is_unwritten, latest = False, self._latest
        try:
            await self._replace_off_loop(self._content())
        except OSError as error:
            if not is_transient(error):
                raise
            self._is_unwritten = self._latest is latest
        if self._latest is not latest:  # A log has failed meanwhile.
            self.note_damage("a log failed")

    async def _replace_off_loop(self, content: bytes) -> None:
        try:
            await self._disk.write_atomic_off_loop(self._path, content)
        except OSError as error:
            if (file := self._overwritten(content, error)) is None:
                raise
            try:
                await file.sync_off_loop()
            finally:
                file.close()

    def _replace(self, content: bytes) -> None:
        try:
            self._disk.write_atomic(self._path, content)
        except OSError as error:
            if (file := self._overwritten(content, error)) is None:
                raise
            try:
                file.sync()
            finally:
                file.close()

    def _overwritten(self, content: bytes, error: OSError) -> File | None:
        """Write over the present file, for want of room; return it to be synced, or None if that is no remedy."""
        if not is_out_of_space(error) or not self._disk.exists(self._path):
            return None
        size = self._disk.file_size(self._path)
        if size < len(content):
            return None
        file = self._disk.open(self._path)
        try:
            file.write_at(content.ljust(size, b"\n"), 0)
        except OSError:
            file.close()
            raise
        return file

    def note_again(self) -> None:
        """Write what there was no room for. Raise ``OSError``."""
        if self._is_unwritten and self._latest is not None:
            self._replace(self._content())
        self._is_unwritten = False

    def mark_epoch(self, broker_epoch: int) -> int:
        """Return the epoch for the clean-shutdown mark of this incarnation; ``broker_epoch``: -1 if it has none.

        It is the one in the file, which tells the mark from that of a release without this file. So an incarnation
        that was never registered passes on the epoch of the last one that was.
        """
        return broker_epoch if self._latest is None else self._latest.until

    def note_damage(self, reason: str) -> None:
        """Forget that the logs are intact. A disk that fails may keep the file."""
        self._failed_meanwhile |= self._is_registering
        if self._latest is None and not self._disk.exists(self._path):
            return
        _log.warning("%s: acknowledged records may be missing: %s", self._log_dir, reason)
        self.epochs, self.earlier = None, ()
        try:
            self._disk.remove(self._path)
            self._disk.sync_dir(self._log_dir)
        except OSError as error:
            _log.error("%s cannot be removed: %s", self._path, error)

    def _write(self) -> None:
        content = self._content()
        try:
            if self._disk.read(self._path) != content:
                self._replace(content)
        except OSError as error:
            if not is_transient(error):
                raise

    def _content(self) -> bytes:
        earlier, latest = self.earlier, self.epochs
        if latest is None:
            earlier, latest = earlier[:-1], earlier[-1]
        lines = [f"{latest.since} {latest.until} {self._disk.identity(self._log_dir)}"]
        if self.ends_are_noted:
            lines.append(_ENDS_ARE_NOTED)
        if self._sessions:
            lines.append(" ".join([_SESSIONS, *(f"{session_id:x}" for session_id in self._sessions)]))
        if earlier:
            lines.append(" ".join([_EARLIER, *(f"{epochs.since}-{epochs.until}" for epochs in earlier)]))
        if self.epochs is None:
            lines.append(_ENDED)
        text = "".join(f"{line}\n" for line in lines).encode()
        return text + b"\n" * (-len(text) % _SECTOR)


def _parse_epochs(text: str) -> IntactEpochs:
    since, _, until = text.partition("-")
    return IntactEpochs(int(since), int(until))
