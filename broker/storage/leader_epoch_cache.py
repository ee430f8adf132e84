"""``LeaderEpochFileCache``: at which offset each leader epoch began in a log.

Followers and consumers truncate by it: "epoch 5 ends at offset 120 here" tells a replica whose epoch 5 ends at 130 that
its last ten records never became part of history. Epochs and start offsets both ascend.

The file, ``leader-epoch-checkpoint``, is not written when an epoch begins, nor when a log is cut at either end: a
broker that starts, or takes over from another one, does so with many logs, and to replace a file takes milliseconds;
and retention must not need room on a full disk. It is replaced before the recovery point passes an epoch's start, and
when the log is closed: recovery reads the epochs of all batches beyond the recovery point, and if a power loss leaves
the file unusable, those of all batches. Loading a log cuts the epochs of the file to the offsets of the log, so that
epochs without batches are forgotten.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from oncelog.broker.storage.checkpoints import decode_checkpoint, encode_checkpoint
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import is_transient

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochFileCache:
    """The epochs of one log."""

    __slots__ = ("_disk", "_epochs", "_offsets", "_written", "is_unsaved", "latest_epoch", "path", "unsynced")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{FILE_NAME}"
        self._epochs: list[int] = []
        self._offsets: list[int] = []
        self.latest_epoch: int | None = None
        self._written = b""
        """What is in the file."""
        self.is_unsaved = False
        """Whether the epochs differ from the file."""
        self.unsynced = False
        """Whether the file has changed since it was last planned to be synced."""

    def open(self) -> bool:
        """Read the file. Return False if it is missing or unusable: then the epochs follow from the batches."""
        if not self._disk.exists(self.path):
            return False
        self._written = self._disk.read(self.path)
        lines = decode_checkpoint(self._written, 2)
        try:
            entries = [EpochEntry(int(epoch), int(offset)) for epoch, offset in lines or ()]
        except ValueError:
            return False
        for entry in entries:
            self._insert(entry)
        return lines is not None

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*entry) for entry in zip(self._epochs, self._offsets, strict=True)]

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._offsets[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that batches from ``start_offset`` on have this epoch. Remove entries that contradict it."""
        self.is_unsaved |= self._insert(EpochEntry(epoch, start_offset))

    def learn(self, epoch: int, offset: int) -> None:
        """Note the epoch of a batch of the log, if it is later than the last one."""
        if epoch >= 0 and (not self._epochs or epoch > self._epochs[-1]):
            self.assign(epoch, offset)

    def save_if_changed(self) -> None:
        if self.is_unsaved:
            self.save()

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the batch at an offset; None if it is not known."""
        slot = bisect_right(self._offsets, offset)
        return self._epochs[slot - 1] if slot else None

    def last_written(self, log_start_offset: int, log_end_offset: int) -> int:
        """Return the epoch of the last batch of the log, or the latest one of an empty log; -1 if none is known.

        It may be below the latest epoch: a leader may have been elected and have written nothing.
        """
        epoch = self.epoch_for_offset(log_end_offset - 1)
        if epoch is None and log_start_offset == log_end_offset:
            epoch = self.latest_epoch
        return UNDEFINED_EPOCH if epoch is None else epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry | None:
        """Return the largest epoch that is not above ``epoch``, and its end offset; None if that is not known.

        An epoch below all that are known ends where the first known one begins: what it had has been deleted.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return EpochEntry(epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        found = self._epochs[above - 1] if above else epoch
        return EpochEntry(found, self._offsets[above])

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that began at or beyond an offset."""
        kept = bisect_left(self._offsets, end_offset)
        if kept < len(self._offsets):
            del self._epochs[kept:]
            del self._offsets[kept:]
            self.latest_epoch = self._epochs[-1] if self._epochs else None
            self.is_unsaved = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before an offset; the epoch of that offset begins there now."""
        below = bisect_right(self._offsets, start_offset)
        if below and self._offsets[0] != start_offset:
            del self._epochs[: below - 1]
            del self._offsets[: below - 1]
            self._offsets[0] = start_offset
            self.is_unsaved = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._offsets.clear()
            self.latest_epoch = None
            self.is_unsaved = True
            try:
                self.save()
            except OSError as error:
                if not is_transient(error):
                    raise
                self._remove()

    def _remove(self) -> None:
        """Delete the file, which needs no room: without it the epochs follow from the batches."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
        self._written = b""

    def _insert(self, entry: EpochEntry) -> bool:
        assert entry.epoch >= 0, entry
        assert entry.start_offset >= 0, entry
        if self._epochs and self._epochs[-1] == entry.epoch and self._offsets[-1] <= entry.start_offset:
            return False
        while self._epochs and (self._epochs[-1] >= entry.epoch or self._offsets[-1] >= entry.start_offset):
            del self._epochs[-1]
            del self._offsets[-1]
        self._epochs.append(entry.epoch)
        self._offsets.append(entry.start_offset)
        self.latest_epoch = entry.epoch
        return True

    def save(self) -> None:
        """Replace the file unless it is up to date."""
        data = encode_checkpoint(self.entries)
        if data != self._written:
            self._disk.write_atomic(self.path, data, sync=False)
            self._written = data
            self.unsynced = True
        self.is_unsaved = False
