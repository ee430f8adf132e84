"""Sends lines, and counts which of them are written, which are not, and of which that is unknown.

A line that is refused for its content (too large, say, or without its key) delays no other line. Any other failure
would affect the next lines, too: nothing more is sent then, and the producer waits for what is in flight. The same
happens when the user stops the command, but that waits for seconds only.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from oncelog.clients.cli.line_numbers import LineNumbers
from oncelog.clients.cli.lines import LineFormat, SeparatorMissing
from oncelog.clients.cli.remedies import NO_RESPONSE
from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    DeliveryTimedOut,
    OperationTimedOut,
    OutcomeUnknown,
    RecordTooLarge,
    RequestTimedOut,
    Unreachable,
)
from oncelog.clients.producer import FutureRecordMetadata, Producer
from oncelog.protocol.errors import ErrorCode

_LOOK_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 2.0
_OF_ONE_RECORD: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""What other records need not meet."""


@dataclass(slots=True)
class Progress:
    """What has been written to one partition."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def note(self, offset: int) -> None:
        self.records += 1
        if offset >= 0:
            self.first_offset = offset if self.first_offset is None else self.first_offset
            self.last_offset = offset


@dataclass(slots=True, kw_only=True)
class LineProducer:
    """The lines of one input, numbered from 1."""

    producer: Producer
    topic: str
    partition: int | None
    format: LineFormat
    now_ms: Callable[[], int]
    on_first_failure: Callable[[int, ClientError], None]
    """Called at once with the number of the first line that is found to be lost, and why."""
    progress: dict[int, Progress] = field(default_factory=dict)
    lost: LineNumbers = field(default_factory=LineNumbers)
    """Lines that are not written."""
    unsure: LineNumbers = field(default_factory=LineNumbers)
    """Lines that may have been written: only their acknowledgement is missing."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no more input is to be read."""
    first_failure: ClientError | None = None
    got_no_response: bool = False
    """Whether a line failed because no broker responded."""
    lines_read: int = 0
    is_stopped: bool = False
    _scope: asyncio.Timeout | None = None
    _under_way: deque[tuple[int, FutureRecordMetadata]] = field(default_factory=deque)

    @property
    def written(self) -> int:
        """The number of lines that are acknowledged."""
        return sum(progress.records for progress in self.progress.values())

    @property
    def has_failures(self) -> bool:
        """Whether a line is not written, or not known to be."""
        return bool(self.lost.count or self.unsure.count)

    def stop(self) -> None:
        """Read no more input, and give what is under way ``_STOP_SECONDS``. Call it in the loop's thread."""
        self.is_stopped = True
        self.over.set()
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time() + _STOP_SECONDS)

    async def run(self, produce_input: Awaitable[None]) -> None:
        """Send an input. When the time after ``stop`` is up, what is still under way counts as unsure."""
        try:
            async with asyncio.timeout(None) as self._scope:
                await produce_input
        except TimeoutError:
            if not self.is_stopped:
                raise
            self._take_done()
            for line, _ in self._under_way:
                self.unsure.add(line)
            self.got_no_response = self.got_no_response or bool(self._under_way)
        finally:
            self._scope = None

    async def send(self, lines: Iterable[bytes]) -> None:
        """Send what was read. Lines that cannot be sent are lost."""
        for line in lines:
            self.lines_read += 1
            if self.over.is_set():
                self.lost.add(self.lines_read)
                continue
            try:
                record = self.format.record(line, self.now_ms())
                future = await self.producer.send(
                    self.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=self.partition,
                    timestamp_ms=record.timestamp,
                )
            except ClientError as error:
                self.lose(self.lines_read, error)
            except asyncio.CancelledError:
                self.lost.add(self.lines_read)
                raise
            else:
                self._under_way.append((self.lines_read, future))
            self._take_done()

    async def finish(self) -> None:
        """Wait for what is in flight."""
        await self.producer.flush()
        self._take_done()

    async def look_for_failures(self) -> None:
        """Report the first failure soon, also while no more input arrives. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._take_done()
            if self.first_failure is None:
                self._look_ahead()

    def lose(self, line: int, error: ClientError) -> None:
        """Count a line as not written, or not known to be written."""
        (self.unsure if may_be_written(error) else self.lost).add(line)
        self._note_failure(line, error)

    def _note_failure(self, line: int, error: ClientError) -> None:
        self.got_no_response = self.got_no_response or means_no_response(error)
        if not _is_of_one_record(error):
            self.over.set()
        if self.first_failure is None:
            line, self.first_failure = self._at_fault(line, error)
            self.on_first_failure(line, self.first_failure)

    def _at_fault(self, line: int, error: ClientError) -> tuple[int, ClientError]:
        """Return the line that is the reason for an error: one of a batch is refused with all others of it."""
        if isinstance(error, BrokerRefused) and error.refusal.is_for_others:
            for other, future in self._under_way:  # The lines of a batch fail together.
                found = future.exception() if future.done() else None
                if isinstance(found, BrokerRefused) and not found.refusal.is_for_others:
                    return other, found
        return line, error

    def _take_done(self) -> None:
        while self._under_way and self._under_way[0][1].done():
            line, future = self._under_way.popleft()
            error = future.exception()
            if error is None:
                metadata = future.result()
                self.progress.setdefault(metadata.partition, Progress()).note(metadata.offset)
            elif isinstance(error, ClientError):
                self.lose(line, error)
            else:
                raise error

    def _look_ahead(self) -> None:
        """Collect records that failed behind one that is still in flight to another partition."""
        for line, future in self._under_way:
            error = future.exception() if future.done() else None
            if isinstance(error, ClientError):
                return self._note_failure(line, error)


def _is_of_one_record(error: ClientError) -> bool:
    refused_record = isinstance(error, BrokerRefused) and error.refusal.error in _OF_ONE_RECORD
    return refused_record or isinstance(error, RecordTooLarge | SeparatorMissing)


def may_be_written(error: ClientError) -> bool:
    """Return whether the line of an error may be written all the same."""
    return isinstance(error, OutcomeUnknown) or (isinstance(error, DeliveryTimedOut) and error.maybe_written)


def means_no_response(error: ClientError) -> bool:
    """Return whether a line failed because no broker responded to the last attempt."""
    if isinstance(error, BrokerRefused):
        return error.refusal.error in NO_RESPONSE
    if isinstance(error, DeliveryTimedOut):
        return error.last_error is None
    return isinstance(error, OperationTimedOut | OutcomeUnknown | RequestTimedOut | Unreachable)
