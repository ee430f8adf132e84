"""``PartitionLog``: the log of one partition on this broker's disk.

It owns four offsets, always in this order (asserted)::

    log start offset ≤ last stable offset (LSO) ≤ high watermark (HW) ≤ log end offset (LEO)

and what goes with them: segments, producer state, leader epochs. It does not know whether it leads: ``replication``
calls ``append_as_leader`` or ``append_as_follower``, moves the high watermark, and truncates.

An append is: check the producer, stamp offset and epoch, one write to the active segment, then indexes and producer
state, in memory. Nothing after the write can fail, so log and state cannot part. What the disk did not take because it
is full, or because no file can be opened, is undone and refused with KAFKA_STORAGE_ERROR: the log is as it was. Any
other ``OSError`` makes the log *failed*: every later call returns KAFKA_STORAGE_ERROR.
"""

import errno
from collections.abc import Callable

from oncelog.broker.storage.append_info import AppendInfo as AppendInfo
from oncelog.broker.storage.append_info import new_append_info
from oncelog.broker.storage.batch_scan import ScannedBatch
from oncelog.broker.storage.disk_errors import failing_unless_transient, is_transient
from oncelog.broker.storage.leader_epoch_cache import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, LeaderEpochFileCache
from oncelog.broker.storage.local_log import ColdRead as ColdRead
from oncelog.broker.storage.local_log import FetchedRecords as FetchedRecords
from oncelog.broker.storage.local_log import LocalLog
from oncelog.broker.storage.log_config import NO_LIMIT, LogConfig
from oncelog.broker.storage.log_cut import prepare_cut
from oncelog.broker.storage.log_files import LOG_SUFFIX, TEMPORARY_SUFFIX
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.log_segment import LogSegment, remove_segments
from oncelog.broker.storage.partition_metadata import read_topic_id, write_topic_id
from oncelog.broker.storage.producer_snapshots import ProducerSnapshots
from oncelog.broker.storage.producer_state import Accept, Duplicate, ProducerStateManager
from oncelog.broker.storage.producer_state import AppendOrigin as AppendOrigin
from oncelog.broker.storage.recovery import LoadedLog, LogLoader, NotedLog, advance_producer_state
from oncelog.broker.storage.replicated_batches import check_replicated
from oncelog.broker.storage.retention import expired, log_expiry, segment_ages
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.control_records import EndTxnMarker
from oncelog.protocol.records.record_batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecord,
    patch_offset_and_epoch,
)
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition


class PartitionLog(LocalLog):
    """One partition's log."""

    def __init__(
        self, host: LogHost, directory: str, topic_partition: TopicPartition, config: LogConfig, loaded: LoadedLog
    ) -> None:
        super().__init__(host, directory, topic_partition, config, loaded)
        self.topic_id = read_topic_id(host.disk, directory)
        self.producer_state = loaded.producer_state
        self._transactions = loaded.producer_state.transactions
        self.high_watermark = loaded.log_start_offset
        self.lower_checkpointed_high_watermark: Callable[[int], None] = lambda _: None
        """Called before a truncation: no offset above this one may be on disk as the high watermark when it returns."""
        self.is_leaving = False
        """Whether it is about to be deleted or set aside: then no high watermark of it may be checkpointed."""
        self.cleaned_offset = loaded.cleaned_offset
        """The closed segments below have been cleaned; never beyond the base of the active one."""
        self.uncleanable = False
        """Whether the cleaner has set the log aside."""
        self.cleaning_shortage: OSError | None = None
        """The transient error that ended the last pass of the cleaner; None if none did."""
        self.on_checkpoints_lowered: Callable[[PartitionLog], None] = lambda _: None
        """Called before a truncation below what is checkpointed: the new offsets must be on disk when this returns."""

    @classmethod
    def open(
        cls, host: LogHost, directory: str, topic_partition: TopicPartition, config: LogConfig, noted: NotedLog
    ) -> "PartitionLog":
        """Load the log in a directory, recovered if need be; an empty one is an empty log. Raise only ``OSError``."""
        loader = LogLoader(
            disk=host.disk,
            directory=directory,
            config=config,
            wall_clock=host.wall_clock,
            producer_state=ProducerStateManager(
                wall_clock=host.wall_clock, producer_id_expiration_ms=host.producer_id_expiration_ms
            ),
            snapshots=ProducerSnapshots(host.disk, directory),
            epochs=LeaderEpochFileCache(host.disk, directory),
            noted=noted,
            on_damage=host.on_damage,
        )
        log = cls(host, directory, topic_partition, config, loader.load())
        log.flush_state.checkpointed_recovery_point = noted.recovery_point
        log.update_high_watermark(min(max(noted.high_watermark, log.high_watermark), log.log_end_offset))
        if not noted.clean_shutdown and config.flush_interval_messages < NO_LIMIT:
            try:
                log.flush()  # Nothing else would flush it before the next append.
            except OSError as error:
                log.note_error(error)
        return log

    # Offsets and epochs

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which every transaction is decided and replicated."""
        unstable = self._transactions.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above ``epoch`` and its end offset here; (-1, -1) if none is known."""
        end = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return (UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET) if end is None else (end.epoch, end.start_offset)

    def update_high_watermark(self, offset: int) -> None:
        """Move the high watermark, also back, as replication decides."""
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        self.high_watermark = offset
        if self._transactions.unreplicated:
            self._transactions.on_high_watermark(offset)

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end offset."""
        self.epochs.assign(epoch, self.log_end_offset)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Write ``partition.metadata``."""
        try:
            self.flush_state.written(write_topic_id(self._disk, self.directory, topic_id, known=self.topic_id))
        except OSError as error:
            self.note_error(error)
        self.topic_id = topic_id

    # Appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        origin: AppendOrigin,
        marker: EndTxnMarker | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo | ErrorCode:
        """Append one validated batch. Return where it is in the log, or why it was not appended.

        Its base offset and leader epoch are stamped into ``batch``. A batch that is in the log already is not appended
        again. ``marker``: what a control batch says, None to have it parsed; ``transaction_version``: the protocol
        version of the transaction that it ends.
        """
        if self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        has_producer = header.producer_id >= 0
        if has_producer:
            verdict = (
                self.producer_state.admit_marker(batch, header, marker, transaction_version)
                if header.attributes & CONTROL_BIT
                else self.producer_state.admit(header, origin)
            )
            if not isinstance(verdict, Accept):
                return verdict.append_info(self.log_start_offset) if isinstance(verdict, Duplicate) else verdict
            marker = verdict.marker
        base_offset = self.log_end_offset
        is_whole = False
        try:
            error = self._write(batch, header, leader_epoch)
            if error is not None:
                is_whole = True
                return error
            if has_producer:
                index = self.segments.active.indexes.transactions
                self.producer_state.apply(header, marker, base_offset, index, transaction_version)
            is_whole = True
        finally:
            if not is_whole:
                self.failed = True  # Before any call: the stack may have no room for one.
                self.mark_failed(_interrupted())
        max_timestamp = header.max_timestamp
        log_append_time = max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else NO_TIMESTAMP
        return new_append_info(
            (base_offset, self.log_end_offset - 1, max_timestamp, log_append_time, self.log_start_offset, False)
        )

    def _write(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int) -> ErrorCode | None:
        """Append a batch to the active segment, or to a new one. After an error the log is as it was, or has failed."""
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        size = header.batch_length + LOG_OVERHEAD
        patch_offset_and_epoch(batch, 0, base_offset, leader_epoch)
        try:
            if leader_epoch != self.epochs.latest_epoch:
                self.epochs.assign(leader_epoch, base_offset)
            segment = self.segments.active
            if not segment.takes(size, last_offset, max_timestamp):
                segment = self._segment_for(size, base_offset, last_offset, max_timestamp)
            position = segment.size
            segment.append((batch,), size)
        except OSError as error:
            self.producer_state.refuse(header)
            self.note_error(error, of_write=True)
            return ErrorCode.KAFKA_STORAGE_ERROR
        segment.note_batch(position, size, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        return None

    def append_as_follower(self, batches: Buffer, leader_epoch: int | None = None) -> AppendInfo | ErrorCode:
        """Append what the leader sent: whole batches, of which the last may be cut off and is then left out.

        ``leader_epoch``: of the leader that was fetched from; batches of later epochs are left out.
        """
        if self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            is_empty = self.log_start_offset == self.log_end_offset
            checked = check_replicated(batches, self.log_end_offset, is_empty=is_empty, leader_epoch=leader_epoch)
            if isinstance(checked, ErrorCode):
                return checked
            accepted, start_offset = checked
            if start_offset is not None:
                self.truncate_fully_and_start_at(start_offset, self.log_start_offset)
                if self.log_end_offset != start_offset:
                    return ErrorCode.KAFKA_STORAGE_ERROR
            base_offset = accepted[0].header.base_offset if accepted else self.log_end_offset
            remaining = accepted
            while remaining:
                remaining = remaining[self._append_replicated(memoryview(batches), remaining) :]
        except CorruptRecord:
            return ErrorCode.CORRUPT_MESSAGE
        except OSError as error:
            self.note_error(error, of_write=True)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.high_watermark < self.log_start_offset:
            self.update_high_watermark(self.log_start_offset)
        return AppendInfo(
            base_offset=base_offset,
            last_offset=self.log_end_offset - 1,
            max_timestamp=max([batch.header.max_timestamp for batch in accepted], default=NO_TIMESTAMP),
            log_append_time=NO_TIMESTAMP,
            log_start_offset=self.log_start_offset,
            duplicate=False,
        )

    def _append_replicated(self, batches: memoryview, accepted: list[ScannedBatch]) -> int:
        """Write as many batches as one segment takes. Return how many."""
        first, header = accepted[0], accepted[0].header
        segment = self._segment_for(header.size, header.base_offset, header.last_offset, header.max_timestamp)
        room, count, size = self.config.segment_bytes - segment.size, 0, 0
        for batch in accepted:
            length = batch.header.batch_length + LOG_OVERHEAD
            if count and (size + length > room or batch.header.last_offset > segment.max_offset):
                break
            count, size = count + 1, size + length
        position = segment.size
        is_whole = True  # An error of the write leaves nothing of it.
        try:
            segment.append((batches[first.position : first.position + size],), size)
            is_whole = False
            for batch in accepted[:count]:
                header = batch.header
                length, last_offset = header.batch_length + LOG_OVERHEAD, header.last_offset
                segment.note_batch(position, length, last_offset, header.max_timestamp)
                position += length
                self.log_end_offset = last_offset + 1
                if header.partition_leader_epoch != self.epochs.latest_epoch:
                    self.epochs.learn(header.partition_leader_epoch, header.base_offset)
                self.producer_state.replay(batch, segment.indexes.transactions)
            is_whole = True
        finally:
            if not is_whole:
                self.failed = True
                self.mark_failed(_interrupted())
        return count

    # Segments

    def _segment_for(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> LogSegment:
        """Return the segment that a batch goes to: the active one, or a new one if it must not go there."""
        if self.segments.active.should_roll(size, last_offset, max_timestamp, self._wall_clock()):
            # Offsets go on where they are, unless the batch would be too far from there.
            self.roll(max(self.log_end_offset, base_offset if last_offset > self.segments.active.max_offset else 0))
        return self.segments.active

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment, at the log end offset or beyond. Raise ``OSError``."""
        if base_offset is None:
            base_offset = self.log_end_offset
        if self.segments.active.size == 0 and self.segments.active.base_offset == base_offset:
            return
        self.segments.active.note_largest_timestamp()
        self.producer_state.map_end_offset = base_offset
        self.snapshots.freeze(self.producer_state)
        self.segments.add(self.create_segment(base_offset))
        self.log_end_offset = base_offset

    # Truncation and retention

    def truncate_to(self, offset: int) -> None:
        """Remove the batches that have ``offset`` or later ones. After a transient error nothing has changed."""
        if self.failed:
            return
        generation = self.generation
        try:
            if offset >= self.log_end_offset:
                self.epochs.truncate_from_end(self.log_end_offset)  # An epoch that nothing was appended in.
            elif offset < self.segments.first.base_offset:
                self._truncate_fully(offset, offset)
            else:
                self._truncate_to(offset)
        except OSError as error:
            self._note_truncation_error(error, generation)

    def _truncate_to(self, offset: int) -> None:
        cut = prepare_cut(self.segments, self.snapshots, self.log_start_offset, offset)
        offset = cut.offset
        self._lower_checkpoints(cut.base_offset, offset, offset)
        remove_segments(self._disk, self.directory, self.segments.remove(cut.kept, len(self.segments)))
        if cut.first is not None:
            self.segments.active.truncate_at(cut.first, self._wall_clock())
        self.log_end_offset = offset
        self.epochs.truncate_from_end(offset)
        self.snapshots.truncate(offset)
        if cut.concerns_producers:
            self.snapshots.apply(cut.snapshot, self.producer_state, self.log_start_offset)
            advance_producer_state(
                self.producer_state, self.snapshots, list(self.segments), self.log_start_offset, offset
            )
        else:
            self.producer_state.map_end_offset = offset
        self.update_high_watermark(min(self.high_watermark, offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything; the log goes on at ``offset``. After a transient error nothing has changed."""
        if self.failed:
            return
        generation = self.generation
        try:
            self._truncate_fully(offset, offset if log_start_offset is None else log_start_offset)
        except OSError as error:
            self._note_truncation_error(error, generation)

    def _note_truncation_error(self, error: OSError, generation: int) -> None:
        """Handle the error of a truncation: fatal once checkpoints are lowered, since it must then be completed.

        What comes after that opens no file, and so cannot fail for want of descriptors.
        """
        (self.note_error if generation == self.generation else self.mark_failed)(error)

    def _truncate_fully(self, offset: int, log_start_offset: int) -> None:
        segment = self.create_segment(offset, name_suffix=TEMPORARY_SUFFIX)
        segment.close()
        try:
            self._lower_checkpoints(offset, log_start_offset, 0)  # A kill in between leaves no segment.
        except OSError:
            self._disk.remove(segment.path(LOG_SUFFIX))
            raise
        remove_segments(self._disk, self.directory, self.segments.remove(0, len(self.segments)))
        segment.drop_name_suffix()
        self.segments.add(segment)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.epochs.clear()
        self.producer_state.clear(offset)
        self.snapshots.clear()
        self.high_watermark = offset

    def _lower_checkpoints(self, base_offset: int, log_start_offset: int, least_end: int) -> None:
        """Lower the checkpointed offsets before bytes change: later batches there are neither cleaned nor flushed."""
        self.flush_state.truncated(base_offset)
        checkpointed = max(self.flush_state.checkpointed_recovery_point, self.cleaned_offset)
        must_write = base_offset < checkpointed or log_start_offset < self.log_start_offset
        before = self.cleaned_offset, self.log_start_offset, self.high_watermark
        self.cleaned_offset = min(self.cleaned_offset, base_offset)
        self.log_start_offset = min(self.log_start_offset, log_start_offset)
        self.high_watermark = min(self.high_watermark, least_end)
        try:
            self.lower_checkpointed_high_watermark(least_end)  # A kill may leave the log to end there.
            if must_write:
                self.on_checkpoints_lowered(self)
        except OSError:
            self.cleaned_offset, self.log_start_offset, self.high_watermark = before
            raise
        self.generation += 1

    def advance_log_start_offset(self, offset: int) -> ErrorCode:
        """Delete the records below an offset, as a client requested or the leader did. Return NONE or why not."""
        if self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if offset > self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if offset > self.log_start_offset:
            try:
                self._advance_log_start(offset)
            except OSError as error:
                self.note_error(error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _advance_log_start(self, offset: int) -> None:
        if offset == self.log_start_offset:
            return
        self.log_start_offset = offset
        self.producer_state.on_log_start(offset)
        self.epochs.truncate_from_start(offset)

    def delete_expired_segments(self, now_ms: int) -> int:
        """Delete the segments that retention allows to delete. Return how many; their files are in ``garbage``.

        A segment is deleted only once it is flushed, since the producer snapshot after it must be on the medium: that
        is then all that is known of the producers. So an expired active segment is rolled now and deleted later. It
        stays while a full disk prevents that.
        """
        if self.failed:
            return 0
        try:
            reasons = expired(
                segment_ages(self.segments, self.log_end_offset),
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            count = len(reasons)
            if count == len(self.segments):
                try:
                    self.roll()
                except OSError as error:
                    if not is_transient(error):
                        raise
                    self.note_error(error)
                    count -= 1
            while count and self.segments[count].base_offset > self.recovery_point:
                count -= 1
            if count:
                log_expiry(self.directory, self.segments, reasons[:count], self.config)
                self._advance_log_start(max(self.log_start_offset, self.segments[count].base_offset))
                removed = self.segments.remove(0, count)
                self.snapshots.remove(segment.base_offset for segment in removed)
                self.discard(removed)
            return count
        except OSError as error:
            self.note_error(error)
            return 0

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Let a cleaned segment, whose files are complete ``.swap`` files, take the place of others. It opens no file.

        Raise ``OSError``; then the log has failed, and loading it will complete the replacement.
        """
        self.segments.replace(old, new)
        self.discard(old)
        self.snapshots.remove(segment.base_offset for segment in old[1:])
        new.drop_name_suffix()

    # The end

    def close(self) -> None:
        """Leave everything as the next ``open`` after a clean shutdown expects it. A failed log is left as it is.

        Raise a transient ``OSError``: then the log is intact, and the next ``open`` has to recover it.
        """
        try:
            if self.write_end():
                self.flush()
        finally:
            self.release()

    def write_end(self) -> bool:
        """Write what a clean end has beside the batches. Return whether there is something to sync.

        Raise a transient ``OSError``: then the log is as it was.
        """
        if not self.failed and self.log_end_offset > 0:
            with failing_unless_transient(self.mark_failed):
                self.producer_state.map_end_offset = self.log_end_offset
                self.snapshots.write_frozen(self.flush_state.written)
                self.flush_state.written(self.snapshots.take(self.producer_state, sync=False))
                self.epochs.truncate_from_end(self.log_end_offset)
                self.epochs.save_if_changed()
                self.segments.active.note_largest_timestamp()
                is_flushed = self.recovery_point == self.log_end_offset and not self.epochs.unsynced
                return not (is_flushed and self.flush_state.is_settled)
        return False


def _interrupted() -> OSError:
    """Return the error of a log to which an unforeseen exception happened between a write and what is noted of it.

    The next batch would get the offset of the one that nothing was noted of. A restart recovers both.
    """
    return OSError(errno.EIO, "an unforeseen exception interrupted an append")
