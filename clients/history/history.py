"""``History``: the operations of all processes, in the order in which they were started."""

from collections.abc import Iterable, Sequence

from oncelog.clients.history.operation import Kind, Operation


class History:
    """Everything that was recorded of one run. Numbers its operations."""

    __slots__ = ("finals", "operations")

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations: Sequence[Operation] = sorted(operations, key=_order)
        for number, operation in enumerate(self.operations):
            operation.number = number
        self.finals = tuple(operation for operation in self.operations if operation.kind is Kind.FINAL)
        """The final reads, in their order."""

    def final_positions(self, group: str) -> dict[str, int] | None:
        """Return a group's positions in the end, by partition; None if no final read has them."""
        return next((dict(final.positions[group]) for final in reversed(self.finals) if group in final.positions), None)


def _order(operation: Operation) -> tuple[int, bool, int]:
    end = operation.end
    return operation.start, end is None, operation.start if end is None else end
