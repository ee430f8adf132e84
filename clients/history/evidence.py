"""Pass A: which operation wrote each value that was read, and which operations are thereby known to be committed.

A value may have several writers: an application that could not commit processes its input again and writes the same
output. A read is then attributed to the write that was acknowledged at its offset; else to one whose offset its client
does not know; else to any. Of these, a write that happened comes before one that may have happened, and that before one
that failed. A read that two writes explain equally well proves nothing about either.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send
from oncelog.clients.history.version_order import VersionOrder

_LIKELY: Final = (Outcome.OK, Outcome.INFO, Outcome.FAIL)


class Write(NamedTuple):
    """A send and its operation."""

    number: int
    """Its place among all writes of the history."""
    operation: Operation
    send: Send


class Evidence:
    """What a history proves about each of its writes. Costs one scan of the history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.writes: Sequence[Write] = [
            Write(number, operation, send) for number, (operation, send) in enumerate(_sends(history.operations))
        ]
        self._writers: dict[str, dict[str, tuple[Write, ...]]] = defaultdict(dict)
        for write in self.writes:
            of_partition = self._writers[write.send.partition]
            of_partition[write.send.value] = (*of_partition.get(write.send.value, ()), write)
        self._read = bytearray(len(self.writes))
        self._maybe_read = bytearray(len(self.writes))
        self._proven = bytearray(len(history.operations))
        self._attribute_reads(history.operations)

    def _attribute_reads(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            for read in operation.reads:
                writers = self.candidates(read)
                if len(writers) == 1:
                    write = writers[0]
                    self._read[write.number] = 1
                    if write.operation.kind is Kind.TXN and write.operation.outcome is Outcome.INFO:
                        self._proven[write.operation.number] = 1
                else:
                    for write in writers:
                        self._maybe_read[write.number] = 1

    def writers(self, partition: str, value: str) -> tuple[Write, ...]:
        """Return all writes of a value, whatever became of them."""
        of_partition = self._writers.get(partition)
        return () if of_partition is None else of_partition.get(value, ())

    def candidates(self, read: Read) -> tuple[Write, ...]:
        """Return the writes that explain a read best: none if the value is unknown, several if it is ambiguous."""
        writers = self.writers(read.partition, read.value)
        if len(writers) < 2:
            return writers
        best = [write for write in writers if write.send.offset == read.offset]
        best = best or [write for write in writers if write.send.offset is None] or list(writers)
        for outcome in _LIKELY:
            likely = tuple(write for write in best if write.operation.outcome is outcome)
            if likely:
                return likely
        return ()

    def writer(self, read: Read) -> Write | None:
        """Return the write of the value that was read; None if it is unknown or ambiguous."""
        candidates = self.candidates(read)
        return candidates[0] if len(candidates) == 1 else None

    def is_read(self, write: Write) -> bool:
        """Return whether some operation read this very write."""
        return bool(self._read[write.number])

    def may_be_read(self, write: Write) -> bool:
        """Return whether some operation read this write, or one that looks the same."""
        return bool(self._read[write.number] or self._maybe_read[write.number])

    def is_committed(self, write: Write) -> bool:
        """Return whether a write must be visible: its operation is ok, or a read proves it.

        One visible record proves a transaction as a whole. Without a transaction it proves only itself.
        """
        operation = write.operation
        if operation.outcome is Outcome.OK:
            return True
        if operation.outcome is Outcome.FAIL:
            return False
        return self.is_proven(operation) if operation.kind is Kind.TXN else self.is_read(write)

    def is_proven(self, operation: Operation) -> bool:
        """Return whether a transaction of unknown outcome is known to be committed, by a record that was read."""
        return bool(self._proven[operation.number])

    @cached_property
    def read_by_ok(self) -> dict[str, set[str]]:
        """The values that ok operations read, by partition."""
        return self._read_by(Outcome.OK)

    @cached_property
    def read_by_info(self) -> dict[str, set[str]]:
        """The values that operations of unknown outcome read, by partition."""
        return self._read_by(Outcome.INFO)

    def _read_by(self, outcome: Outcome) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for operation in self.history.operations:
            if operation.outcome is outcome:
                for read in operation.reads:
                    found[read.partition].add(read.value)
        return found

    def first_reader(self, partition: str, value: str) -> tuple[Operation, ...]:
        """Return the first ok operation that read a value, if there is one."""
        operation = self._first_readers.get((partition, value))
        return () if operation is None else (operation,)

    @cached_property
    def _first_readers(self) -> dict[tuple[str, str], Operation]:
        found: dict[tuple[str, str], Operation] = {}
        for operation in self.history.operations:
            if operation.outcome is Outcome.OK:
                for read in operation.reads:
                    found.setdefault((read.partition, read.value), operation)
        return found

    @cached_property
    def orders(self) -> dict[str, VersionOrder]:
        """The values of each partition in the order of the log, as far as they are known."""
        orders: dict[str, VersionOrder] = defaultdict(VersionOrder)
        for operation in self.history.operations:
            for read in operation.reads:
                orders[read.partition].insert(read.offset, read.value)
        for write in self.writes:
            if write.send.offset is not None and self.is_committed(write):
                orders[write.send.partition].insert(write.send.offset, write.send.value)
        for order in orders.values():
            order.freeze()
        return dict(orders)


def _sends(operations: Iterable[Operation]) -> Iterator[tuple[Operation, Send]]:
    return ((operation, send) for operation in operations for send in operation.sends)
