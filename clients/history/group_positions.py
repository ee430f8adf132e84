"""Pass E, second part: groups whose positions and outputs are committed together, so that each input counts once.

A transaction that commits a group's position processed the inputs that it read below that position; its writes are
their outputs. So each input below the group's last position was processed by exactly one committed transaction, and no
input at or above it by any.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.atomicity import FinalVisibility
from oncelog.clients.history.evidence import Evidence, Write
from oncelog.clients.history.operation import Kind, Operation, Outcome, Place

_NOT_JUDGED: Final = -1


class _Attempts(NamedTuple):
    """The transactions of a group that processed one input."""

    committed: list[Operation]
    possible: list[Operation]
    """Of unknown outcome, and nothing proves either."""
    without_effect: list[Operation]


def check_groups(evidence: Evidence) -> Iterator[Anomaly]:
    """Find inputs of groups that were processed twice, or never, or in disagreement with the group's position."""
    attempts = _attempts(evidence)
    for group, inputs in attempts.items():
        positions = evidence.history.final_positions(group)
        for place, found in sorted(inputs.items()):
            where = f"group {group}, input {place.partition} offset {place.offset}"
            if len(found.committed) > 1:
                text = f"{where}: processed by {len(found.committed)} committed transactions"
                yield Anomaly(AnomalyKind.CONSUMED_TWICE, text, tuple(found.committed))
            if positions is not None:
                yield from _compare(where, found, place.offset, positions.get(place.partition, 0), evidence)
        if positions is not None:
            yield from _skipped(evidence, group, inputs, positions)


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


def _attempts(evidence: Evidence) -> dict[str, dict[Place, _Attempts]]:
    """Return the transactions that processed each input, by group."""
    found: dict[str, dict[Place, _Attempts]] = defaultdict(lambda: defaultdict(lambda: _Attempts([], [], [])))
    visible = FinalVisibility(evidence)
    writes = iter(evidence.writes)
    for operation in evidence.history.operations:
        own = [next(writes) for _ in operation.sends]
        if operation.kind is not Kind.TXN or not operation.positions:
            continue
        fate = _fate(evidence, visible, operation, own)
        for group, positions in operation.positions.items():
            for read in operation.reads:
                if read.offset < positions.get(read.partition, _NOT_JUDGED):
                    found[group][Place(read.partition, read.offset)][fate].append(operation)
    return found


def _fate(evidence: Evidence, visible: FinalVisibility, operation: Operation, writes: list[Write]) -> int:
    """Return which field of ``_Attempts`` a transaction belongs to."""
    if operation.outcome is Outcome.OK or (operation.outcome is Outcome.INFO and evidence.is_proven(operation)):
        return 0
    if operation.outcome is Outcome.FAIL:
        return 2
    return 2 if any(visible.is_known(write) and not visible.is_there(write) for write in writes) else 1
