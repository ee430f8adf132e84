"""Pass E, second part: groups whose positions and outputs are committed together, so that each input counts once.

A transaction that commits a group's position processed the inputs that it read below that position; its writes are
their outputs. So each input below the group's last position was processed by exactly one committed transaction, and no
input at or above it by any. The last position is one that a transaction has committed: where no input was processed
that the history knows of, nothing else shows that it is wrong.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.atomicity import FinalVisibility
from oncelog.clients.history.evidence import Evidence, Write
from oncelog.clients.history.operation import Kind, Operation, Outcome, Place

_NOT_JUDGED: Final = -1
_WITHOUT_EFFECT: Final = 2
"""The place of that field in ``_Attempts``."""


class _Group(NamedTuple):
    """What the transactions of a group did."""

    inputs: "dict[Place, _Attempts]"
    """By input that one of them processed."""
    positions: dict[str, set[int]]
    """By partition, what those committed that may have committed anything."""


class _Attempts(NamedTuple):
    """The transactions of a group that processed one input."""

    committed: list[Operation]
    possible: list[Operation]
    """Of unknown outcome, and nothing proves either."""
    without_effect: list[Operation]


def check_groups(evidence: Evidence) -> Iterator[Anomaly]:
    """Find inputs of groups that were processed twice, or never, or in disagreement with the group's position."""
    for group, known in _groups(evidence).items():
        inputs, positions = known.inputs, evidence.history.final_positions(group)
        for place, found in sorted(inputs.items()):
            where = f"group {group}, input {place.partition} offset {place.offset}"
            if len(found.committed) > 1:
                text = f"{where}: processed by {len(found.committed)} committed transactions"
                yield Anomaly(AnomalyKind.CONSUMED_TWICE, text, tuple(found.committed))
            if positions is not None:
                yield from _compare(where, found, place.offset, positions.get(place.partition, 0), evidence)
        if positions is not None:
            yield from _skipped(evidence, group, inputs, positions)
            yield from _uncommitted(evidence, group, known.positions, positions)


def _compare(where: str, found: _Attempts, offset: int, position: int, evidence: Evidence) -> Iterator[Anomaly]:
    finals = evidence.history.finals
    if offset >= position and found.committed:
        text = f"{where}: its outputs are committed, and the group's position is {position}"
        yield Anomaly(AnomalyKind.TORN_OFFSETS, text, (*found.committed, *finals[-1:]))
    elif offset < position and not found.committed and not found.possible:
        text = f"{where}: the group's position is {position}, and no transaction with its outputs is committed"
        yield Anomaly(AnomalyKind.TORN_OFFSETS, text, (*found.without_effect, *finals[-1:]))


def _skipped(
    evidence: Evidence, group: str, inputs: dict[Place, _Attempts], positions: dict[str, int]
) -> Iterator[Anomaly]:
    """Find known records between the first that the group processed and its position that it never processed."""
    first: dict[str, int] = {}
    for place in inputs:
        first[place.partition] = min(place.offset, first.get(place.partition, place.offset))
    for partition, begin in sorted(first.items()):
        order = evidence.orders[partition]
        for index, offset in enumerate(order.offsets):
            if begin <= offset < positions.get(partition, 0) and Place(partition, offset) not in inputs:
                text = f"group {group}, input {partition} offset {offset}: {order.value(index)!r} was never processed"
                readers = evidence.first_reader(partition, order.value(index))
                yield Anomaly(AnomalyKind.SKIPPED_INPUT, text, (*readers, *evidence.history.finals[-1:]))


def _uncommitted(
    evidence: Evidence, group: str, committed: dict[str, set[int]], positions: dict[str, int]
) -> Iterator[Anomaly]:
    """Find positions beyond records of this history that no transaction has committed."""
    for partition, position in sorted(positions.items()):
        order = evidence.orders.get(partition)
        if order is None or not order.offsets or position <= order.offsets[0]:
            continue  # The group may have had it before.
        if position not in committed.get(partition, ()):
            text = f"group {group}: its position in {partition} is {position}, which no transaction has committed"
            yield Anomaly(AnomalyKind.TORN_OFFSETS, text, evidence.history.finals[-1:])


def _groups(evidence: Evidence) -> dict[str, _Group]:
    """Return what the transactions of each group did."""
    found: dict[str, _Group] = {}
    visible = FinalVisibility(evidence)
    writes = iter(evidence.writes)
    for operation in evidence.history.operations:
        own = [next(writes) for _ in operation.sends]
        if operation.kind is not Kind.TXN or not operation.positions:
            continue
        fate = _fate(evidence, visible, operation, own)
        for name, positions in operation.positions.items():
            group = found.setdefault(name, _Group(defaultdict(lambda: _Attempts([], [], [])), defaultdict(set)))
            for read in operation.reads:
                if read.offset < positions.get(read.partition, _NOT_JUDGED):
                    group.inputs[Place(read.partition, read.offset)][fate].append(operation)
            if fate != _WITHOUT_EFFECT:
                for partition, position in positions.items():
                    group.positions[partition].add(position)
    return found


def _fate(evidence: Evidence, visible: FinalVisibility, operation: Operation, writes: list[Write]) -> int:
    """Return which field of ``_Attempts`` a transaction belongs to."""
    if operation.outcome is Outcome.OK or (operation.outcome is Outcome.INFO and evidence.is_proven(operation)):
        return 0
    if operation.outcome is Outcome.FAIL:
        return _WITHOUT_EFFECT
    return _WITHOUT_EFFECT if any(visible.is_known(write) and not visible.is_there(write) for write in writes) else 1
