"""Pass C, third part: what two successive reads, or writes, of one client show.

Two of them are δ apart in the version order of their partition. δ = 1 is right; δ > 1 skips what lies between, and
δ < 1 goes back. A value whose offset is unknown is taken to be right.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.evidence import Evidence
from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send
from oncelog.clients.history.version_order import VersionOrder

_SHOWN: Final = 3
"""Values between two, in a text."""

Record: TypeAlias = Read | Send


class _Point(NamedTuple):
    """A record of an operation, and its index in the version order."""

    operation: Operation
    record: Record
    at: int | None


def check_inside(evidence: Evidence) -> Iterator[Anomaly]:
    """Find successive reads, and successive writes, of one operation that skip or go back."""
    for operation in evidence.history.operations:
        for before, after in _successive(evidence, operation, operation.reads):
            if after.record.partition not in operation.moved:
                yield from _compare(
                    evidence, before, after, AnomalyKind.INT_POLL_SKIP, AnomalyKind.INT_NONMONOTONIC_POLL
                )
        if operation.outcome is not Outcome.FAIL:
            for before, after in _successive(evidence, operation, operation.sends):
                yield from _compare(
                    evidence, before, after, AnomalyKind.INT_SEND_SKIP, AnomalyKind.INT_NONMONOTONIC_SEND
                )


def check_polls_between(evidence: Evidence) -> Iterator[Anomaly]:
    """Find reads of successive operations of one process that skip or go back.

    Not of a process that is subscribed: its group may give a partition to it and to others in turn, each time from
    where the group is. After an operation of unknown outcome the position of its process is unknown.
    """
    walks: dict[str, _Reader] = {}
    for operation in evidence.history.operations:
        if operation.kind is Kind.FINAL:
            continue
        reader = walks.setdefault(operation.process, _Reader())
        for before, after in reader.follow(evidence, operation):
            yield from _compare(evidence, before, after, AnomalyKind.POLL_SKIP, AnomalyKind.NONMONOTONIC_POLL)


class _Reader:
    """Where one process has read to, by partition."""

    __slots__ = ("_is_subscribed", "_last")

    def __init__(self) -> None:
        self._is_subscribed = False
        self._last: dict[str, _Point] = {}

    def follow(self, evidence: Evidence, operation: Operation) -> list[tuple[_Point, _Point]]:
        """Take the next operation; return the last read before it and the first read in it, of each partition."""
        if operation.kind in (Kind.ASSIGN, Kind.SUBSCRIBE) and operation.outcome is not Outcome.FAIL:
            self._is_subscribed = operation.kind is Kind.SUBSCRIBE
            self._last = {name: last for name, last in self._last.items() if name in operation.partitions}
        for partition in operation.moved:
            self._last.pop(partition, None)
        pairs = []
        last: dict[str, _Point] = {}
        for read in operation.reads:
            point = _point(evidence, operation, read)
            if read.partition not in last and read.partition in self._last:
                pairs.append((self._last[read.partition], point))
            last[read.partition] = point
        if operation.outcome is Outcome.OK:
            self._last |= last
        elif operation.outcome is Outcome.INFO:
            self._last = {name: point for name, point in self._last.items() if name not in last}
        return [] if self._is_subscribed else pairs


def check_sends_between(evidence: Evidence) -> Iterator[Anomaly]:
    """Find writes of successive operations of one process that are in the log in the other order.

    A write outside of a transaction whose outcome is unknown is left out: it may arrive when later ones are done.
    """
    last: dict[tuple[str, str], _Point] = {}
    for operation in evidence.history.operations:
        is_late = operation.kind is Kind.SEND and operation.outcome is Outcome.INFO
        if operation.outcome is Outcome.FAIL or is_late:
            continue
        points: dict[str, list[_Point]] = {}
        for send in operation.sends:
            points.setdefault(send.partition, []).append(_point(evidence, operation, send))
        for partition, own in points.items():
            before = last.get((operation.process, partition))
            if before is not None:
                yield from _compare(evidence, before, own[0], None, AnomalyKind.NONMONOTONIC_SEND)
            if own[-1].at is not None:
                last[operation.process, partition] = own[-1]


def _successive(evidence: Evidence, operation: Operation, records: Iterable[Record]) -> Iterator[tuple[_Point, _Point]]:
    """Yield each record of an operation with the next one of its partition."""
    last: dict[str, _Point] = {}
    for record in records:
        point = _point(evidence, operation, record)
        if record.partition in last:
            yield last[record.partition], point
        last[record.partition] = point


def _point(evidence: Evidence, operation: Operation, record: Record) -> _Point:
    order = evidence.orders.get(record.partition)
    if order is None:
        return _Point(operation, record, None)
    if record.offset is not None:
        return _Point(operation, record, order.index(record.offset, record.value))
    # Of several writers of a value it is not known which one is where.
    is_only = len(evidence.writers(record.partition, record.value)) == 1
    return _Point(operation, record, order.first(record.value) if is_only else None)


def _compare(
    evidence: Evidence, before: _Point, after: _Point, skip: AnomalyKind | None, back: AnomalyKind
) -> Iterator[Anomaly]:
    if before.at is None or after.at is None:
        return
    distance = after.at - before.at
    what = f"{before.record.partition}: {_name(before.record)}, then {_name(after.record)}"
    proof = tuple(dict.fromkeys((before.operation, after.operation)))
    if distance < 1:
        yield Anomaly(back, what, proof)
    elif distance > 1 and skip is not None:
        between = _between(evidence.orders[before.record.partition], before.at, after.at)
        yield Anomaly(skip, f"{what}; between them {between}", proof)


def _name(record: Record) -> str:
    return repr(record.value) if record.offset is None else f"{record.value!r} at {record.offset}"


def _between(order: VersionOrder, first: int, last: int) -> str:
    shown = [f"{order.value(index)!r} at {order.offsets[index]}" for index in range(first + 1, last)[:_SHOWN]]
    rest = last - first - 1 - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
