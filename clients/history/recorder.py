"""``Recorder``: records in a program what its clients do, for ``judge`` or for a file.

Each process begins an operation, notes what it writes and reads, and says how it ended. One that does not say so, since
its client died, stays ``info``. All methods return at once and never fail for what a broker did.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from oncelog.clients.history.file_format import header_line, operation_line
from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send


class RecordedOperation:
    """One operation under way."""

    __slots__ = ("_clock", "_moved", "_operation", "_positions", "_reads", "_sends")

    def __init__(self, clock: Callable[[], int], operation: Operation) -> None:
        self._clock = clock
        self._operation = operation
        self._sends: list[Send] = []
        self._reads: list[Read] = []
        self._moved: list[str] = []
        self._positions: dict[str, dict[str, int]] = {}

    def send(self, partition: str, value: str) -> int:
        """Note a record before it is sent. Returns its number in this operation, for ``acknowledged``."""
        self._sends.append(Send(partition, None, value))
        return len(self._sends) - 1

    def acknowledged(self, number: int, offset: int) -> None:
        """Note the offset of a record, as the broker said."""
        self._sends[number] = self._sends[number]._replace(offset=offset)

    def read(self, partition: str, offset: int, value: str) -> None:
        """Note a record that was returned."""
        self._reads.append(Read(partition, offset, value))

    def moved(self, partition: str) -> None:
        """Note that the position in a partition was set: by a rebalance, a seek or a reset."""
        self._moved.append(partition)

    def commit_position(self, group: str, partition: str, offset: int) -> None:
        """Note the position of a group that the transaction commits, or that a final read found."""
        self._positions.setdefault(group, {})[partition] = offset

    def end(self, outcome: Outcome, error: str = "") -> None:
        """Note how the operation ended."""
        self._operation.outcome = outcome
        self._operation.error = error
        self._operation.end = self._clock()

    def finish(self) -> Operation:
        """Return the operation as it is now."""
        operation = self._operation
        operation.sends, operation.reads = tuple(self._sends), tuple(self._reads)
        operation.moved, operation.positions = tuple(self._moved), self._positions
        return operation


class Recorder:
    """The operations of all processes of a program."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin without operations. ``clock`` returns nanoseconds that do not go back."""
        self._clock = clock
        self._operations: list[RecordedOperation] = []

    def begin(self, process: str, kind: Kind, partitions: Sequence[str] = ()) -> RecordedOperation:
        """Note that a process starts an operation; call it before the first request."""
        operation = Operation(
            process=process, kind=kind, outcome=Outcome.INFO, start=self._clock(), partitions=tuple(partitions)
        )
        recorded = RecordedOperation(self._clock, operation)
        self._operations.append(recorded)
        return recorded

    def record(self, process: str, kind: Kind, partitions: Sequence[str]) -> None:
        """Note an operation without requests: ``ASSIGN`` or ``SUBSCRIBE``."""
        self.begin(process, kind, partitions).end(Outcome.OK)

    def record_final(
        self, records: Mapping[str, Iterable[tuple[int, str]]], positions: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Note what whole partitions have in the end, as (offset, value), and the positions of groups."""
        final = self.begin("final", Kind.FINAL, tuple(records))
        for partition, found in records.items():
            for offset, value in found:
                final.read(partition, offset, value)
        for group, offsets in positions.items():
            for partition, offset in offsets.items():
                final.commit_position(group, partition, offset)
        final.end(Outcome.OK)

    def history(self) -> History:
        """Return everything so far."""
        return History(recorded.finish() for recorded in self._operations)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a file with everything so far."""
        yield header_line()
        for operation in self.history().operations:
            yield operation_line(operation)
