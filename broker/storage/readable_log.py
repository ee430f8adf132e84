"""``ReadableLog``: what can be asked of a log. Its other half, ``PartitionLog``, is what changes it.

What ``read`` finds in memory it returns; else it returns a ``ColdRead``, to be awaited with ``read_cold``. Reads take
whole batches from the one that contains the offset on (the last one may be cut off), so a fetch that begins inside a
batch skips nothing.
"""

from collections.abc import Callable
from logging import getLogger
from typing import NamedTuple

from oncelog.broker.storage.disk_errors import is_passing
from oncelog.broker.storage.leader_epoch_cache import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.log_segment import ShortRead
from oncelog.broker.storage.log_segments import LogSegments
from oncelog.broker.storage.partition_metadata import read_topic_id
from oncelog.broker.storage.producer_state import ProducerStateEntry
from oncelog.broker.storage.recovery import LoadedLog
from oncelog.broker.storage.timestamp_search import FoundOffset, Search, find_by_timestamp, find_max_timestamp
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import CorruptRecord
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition

_log = getLogger(__name__)


class FetchedRecords(NamedTuple):
    """What a read found: whole batches, the last of which may be cut off."""

    records: Buffer
    next_offset: int
    """All of them are below; there may be more below that are not among them."""


class ColdRead(NamedTuple):
    """A read whose data is not in memory."""

    start_offset: int
    size: int
    """At most."""
    upper_offset: int
    min_one_batch: bool


class ReadableLog:
    """The offsets and contents of one log. Attributes are for reading; only methods change them."""

    def __init__(
        self, host: LogHost, directory: str, topic_partition: TopicPartition, config: LogConfig, loaded: LoadedLog
    ) -> None:
        self._disk = host.disk
        self._space = host.space
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = read_topic_id(host.disk, directory)
        self.config = config
        self.segments = LogSegments(loaded.segments)
        self.producer_state = loaded.producer_state
        self.snapshots = loaded.snapshots
        self._transactions = loaded.producer_state.transactions
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.cleaned_offset = loaded.cleaned_offset
        """The closed segments below have been cleaned; never beyond the base of the active one."""
        self.uncleanable = False
        """Whether the cleaner has set the log aside."""
        self.failed = False
        self.failure: OSError | None = None
        self.on_failure: Callable[[ReadableLog], None] = _nothing
        """Called once, when the log fails."""
        self.generation = 0
        """How often segments went, or offsets changed their meaning."""

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """Below, every transaction is decided and replicated."""
        unstable = self._transactions.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        unstable = self._transactions.first_unstable_offset
        return None if unstable is None else max(unstable, self.log_start_offset)

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest_epoch

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and where it ends here; (-1, -1) if nothing is known."""
        end = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return (UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET) if end is None else (end.epoch, end.start_offset)

    def active_producers(self) -> list[ProducerStateEntry]:
        return list(self.producer_state.producers.values())

    # Reading

    def read(
        self, start_offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> FetchedRecords | ColdRead | ErrorCode:
        """Batches from the one that contains ``start_offset`` on, of those that begin below ``upper_offset``.

        ``min_one_batch``: the first batch is returned whatever its size; else nothing is if it is too large.
        """
        if self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        upper_offset = min(upper_offset, log_end_offset)
        steps = self.segments.read(start_offset, max_bytes, upper_offset, log_end_offset, min_one_batch)
        try:
            request = next(steps)
            while True:
                data = request.file.try_read_at(request.size, request.position)
                if data is None:
                    return ColdRead(start_offset, max_bytes, upper_offset, min_one_batch)
                request = steps.send(data)
        except StopIteration as stop:
            return FetchedRecords(*stop.value)
        except ShortRead:
            return ColdRead(start_offset, max_bytes, upper_offset, min_one_batch)
        except OSError as error:
            self.note_error(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except CorruptRecord as error:
            return self._damaged(start_offset, error)

    async def read_cold(self, cold: ColdRead) -> FetchedRecords | ErrorCode:
        """The same, waiting for the disk. Truncation meanwhile makes it begin again."""
        while True:
            generation = self.generation
            if self.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not self.log_start_offset <= cold.start_offset <= self.log_end_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            try:
                result: FetchedRecords | ErrorCode = await self._read_off_loop(cold)
            except OSError as error:
                if generation == self.generation:
                    self.note_error(error)
                    return ErrorCode.KAFKA_STORAGE_ERROR
            except (CorruptRecord, ShortRead) as error:
                if generation == self.generation:
                    return self._damaged(cold.start_offset, error)
            else:
                if generation == self.generation:
                    return result

    async def _read_off_loop(self, cold: ColdRead) -> FetchedRecords:
        end_offset = self.log_end_offset
        upper_offset = min(cold.upper_offset, end_offset)
        steps = self.segments.read(cold.start_offset, cold.size, upper_offset, end_offset, cold.min_one_batch)
        try:
            request = next(steps)
            while True:
                request = steps.send(await request.file.read_at_off_loop(request.size, request.position))
        except StopIteration as stop:
            return FetchedRecords(*stop.value)

    def _damaged(self, start_offset: int, error: Exception) -> ErrorCode:
        """The file has no batch where the log should: nothing can be read there, but the rest of the log is whole."""
        _log.error("%s cannot be read at offset %d: %s", self.directory, start_offset, error)
        return ErrorCode.CORRUPT_MESSAGE

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap [start, upper)."""
        return [
            (aborted.producer_id, aborted.first_offset)
            for aborted in self.segments.aborted_transactions(start_offset, upper_offset)
        ]

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes there are between two offsets; not 0 if there is anything."""
        if end_offset <= start_offset:
            return 0
        if end_offset >= self.log_end_offset:
            active = self.segments.active
            if start_offset >= active.base_offset:
                return max(1, active.size - active.position_of(start_offset))
        return max(1, self.segments.size_between(start_offset, end_offset))

    def offset_for_timestamp(self, timestamp: int, budget: WorkBudget) -> Search:
        """Search for the first record that is not older."""
        return self._search(lambda: find_by_timestamp(self.segments, timestamp, self.log_start_offset, budget))

    def max_timestamp_offset(self, budget: WorkBudget) -> Search:
        """Search for the first record with the largest timestamp."""
        return self._search(lambda: find_max_timestamp(self.segments, budget))

    def _search(self, new_search: Callable[[], Search]) -> Search:
        """Carry out a search, and begin it again if the log loses segments in one of its pauses."""
        while not self.failed:
            generation, search, data = self.generation, new_search(), None
            try:
                while generation == self.generation:
                    request = search.send(data)
                    data = yield request
            except StopIteration as stop:
                found: FoundOffset | None = stop.value
                return found
            except OSError as error:
                if generation == self.generation:
                    self.note_error(error)
                    return None
            except CorruptRecord as error:
                if generation == self.generation:
                    self._damaged(self.log_start_offset, error)
                    return None
        return None

    def note_error(self, error: OSError) -> None:
        """Note that an operation failed and left the log as it was: the log has failed, unless the error passes."""
        if is_passing(error):
            self._space.note(error, self.directory)
        else:
            self.mark_failed(error)

    def mark_failed(self, error: OSError) -> None:
        """From now on nothing is appended, read or acknowledged."""
        if self.failed:
            return
        _log.error("%s failed: %s", self.directory, error)
        self.failed = True
        self.failure = error
        self.on_failure(self)


def _nothing(log: ReadableLog) -> None:
    """Nobody has asked to be told."""
