"""Pass C, first part: what a single read, or a single offset, shows."""

from collections.abc import Iterable, Iterator

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.evidence import Evidence
from oncelog.clients.history.operation import Kind, Operation, Outcome, Place


def check_log(evidence: Evidence) -> Iterator[Anomaly]:
    """Find offsets with two values, and values at two offsets."""
    conflicts = [
        (Place(name, at), values) for name, order in evidence.orders.items() for at, values in order.conflicts()
    ]
    duplicates = [
        (name, value, offsets) for name, order in evidence.orders.items() for value, offsets in order.duplicates()
    ]
    if not conflicts and not duplicates:
        return
    seen_by = _Witnesses(
        evidence,
        {*(place for place, _ in conflicts), *(Place(name, at) for name, _, offsets in duplicates for at in offsets)},
    )
    for place, values in conflicts:
        text = f"{place.partition} offset {place.offset} has {' and '.join(map(repr, values))}"
        yield Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, text, seen_by.first(place, values))
    for name, value, offsets in duplicates:
        text = f"{name} has {value!r} at the offsets {', '.join(map(str, offsets))}"
        proof = [operation for at in offsets for operation in seen_by.first(Place(name, at), [value])]
        writers = [write.operation for write in evidence.writers(name, value)]
        yield Anomaly(AnomalyKind.DUPLICATE, text, tuple(dict.fromkeys([*writers, *proof])))


class _Witnesses:
    """For some places, the first operation that saw each value there. One scan for all of them."""

    def __init__(self, evidence: Evidence, places: set[Place]) -> None:
        self._first: dict[tuple[Place, str], Operation] = {}
        for operation in evidence.history.operations:
            for read in operation.reads:
                self._note(places, Place(read.partition, read.offset), read.value, operation)
            for send in operation.sends:
                if send.offset is not None and operation.outcome is not Outcome.FAIL:
                    self._note(places, Place(send.partition, send.offset), send.value, operation)

    def _note(self, places: set[Place], place: Place, value: str, operation: Operation) -> None:
        if place in places:
            self._first.setdefault((place, value), operation)

    def first(self, place: Place, values: Iterable[str]) -> tuple[Operation, ...]:
        found = (self._first.get((place, value)) for value in values)
        return tuple(dict.fromkeys(operation for operation in found if operation is not None))


def check_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find reads of what failed, of what no operation wrote, and of a transaction's own writes.

    The reads of operations that failed count as well: a consumer of committed records returns such records only,
    whatever becomes of the transaction for which it reads.
    """
    reported: set[tuple[Place, str]] = set()
    for operation in evidence.history.operations:
        for read in operation.reads:
            place = Place(read.partition, read.offset)
            writers = evidence.candidates(read)
            where = f"{read.partition} offset {read.offset}: {read.value!r}"
            if operation.kind is Kind.TXN and any(write.operation is operation for write in writers):
                yield Anomaly(AnomalyKind.PRECOMMITTED_READ, f"{where} was read by its own writer", (operation,))
            if (place, read.value) in reported:
                continue
            if not writers:
                reported.add((place, read.value))
                yield Anomaly(AnomalyKind.UNKNOWN_VALUE, f"{where} was written by no operation", (operation,))
            elif writers[0].operation.outcome is Outcome.FAIL:
                reported.add((place, read.value))
                text = f"{where} was read, and its write failed"
                yield Anomaly(AnomalyKind.ABORTED_READ, text, (writers[0].operation, operation))
