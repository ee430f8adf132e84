r"""Kafka's checkpoint files: small texts that are replaced as a whole.

::

    0                    version
    2                    how many entries follow
    topic 0 1234         an entry per line, fields separated by one space

An *offset checkpoint* at the top of a data directory has ``topic partition offset`` for each partition; the files are
named below. ``leader-epoch-checkpoint`` in a partition's directory has ``epoch start_offset``
(``leader_epoch_cache.py``).

A file that is missing, torn or garbled reads as ``None``: for each there is a fallback that is slower or less precise,
and a broker starts whatever a power loss left of a checkpoint.
"""

import errno
from collections.abc import Iterable, Mapping
from logging import getLogger
from typing import Final

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_files import TEMPORARY_SUFFIX
from oncelog.protocol.topic_partition import TopicPartition

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
"""Below these offsets everything is on the medium: recovery begins there."""
REPLICATION_CHECKPOINT: Final = "replication-offset-checkpoint"
"""High watermarks."""
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
"""Where logs begin, if that is not where their first segment begins."""
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
"""Up to where compacted logs have been cleaned."""

CHECKPOINTS: Final = frozenset(
    {RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT}
)

_VERSION: Final = "0"

_log = getLogger(__name__)


def encode_checkpoint(entries: Iterable[tuple[object, ...]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(data: bytes, fields: int) -> list[list[str]] | None:
    """Return the fields of each entry; None unless the text is whole and every entry has ``fields`` of them."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not data.endswith(b"\n"):
        return None  # Torn, and maybe inside a number.
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        return None
    entries = [line.split() for line in lines[2:]]
    return entries if all(len(entry) == fields for entry in entries) else None


class OffsetCheckpoint:
    """One offset checkpoint file."""

    __slots__ = ("_disk", "_log_dir", "_path", "_writes")

    def __init__(self, disk: Disk, log_dir: str, name: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._path = f"{log_dir}/{name}"
        self._writes = 0

    def read(self) -> dict[TopicPartition, int] | None:
        """Return the offsets; None if there is no usable file."""
        if not self._disk.exists(self._path):
            return None
        data = self._disk.read(self._path)
        if not data:
            return {}  # Kafka makes such a file before it has anything to write.
        entries = decode_checkpoint(data, 3)
        try:
            if entries is not None:
                return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}
        except ValueError:
            pass
        _log.warning("Ignoring %s: it is not a whole checkpoint", self._path)
        return None

    def remove(self) -> None:
        """Remove the file, if there is one, and leave out any write of it that is under way."""
        self._writes += 1
        if self._disk.exists(self._path):
            self._disk.remove(self._path)

    def write(self, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
        self._writes += 1
        self._disk.write_atomic(self._path, _encode_offsets(offsets), sync=sync)

    async def write_off_loop(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, off the loop; leave it to any other write that begins before this one could replace it."""
        self._writes += 1
        writes = self._writes
        temporary = f"{self._path}.{writes}{TEMPORARY_SUFFIX}"
        file = self._disk.open(temporary, create=True)
        try:
            data = _encode_offsets(offsets)
            file.truncate(0)
            if file.append((data,)) < len(data):
                raise OSError(errno.ENOSPC, f"short write to {temporary}")
            await file.sync_off_loop()
        except OSError:
            self._disk.remove(temporary)  # On a full disk every byte counts.
            raise
        finally:
            file.close()
        if writes != self._writes:
            self._disk.remove(temporary)
            return
        self._disk.rename(temporary, self._path)
        await self._disk.sync_dir_off_loop(self._log_dir)


def _encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_checkpoint((*topic_partition, offset) for topic_partition, offset in offsets.items())
