"""Pass E, first part: transactions of which a final read shows a part."""

from collections.abc import Iterator

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.evidence import Evidence, Write
from oncelog.clients.history.operation import Kind, Operation, Read


def check_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find transactions of two writes or more of which some are visible in the end and some are not.

    Whatever its client knows of the outcome. A write counts only if the final read has its partition, and not at all if
    what is visible may be its own as well as another's.
    """
    if not evidence.history.finals:
        return
    visible = FinalVisibility(evidence)
    for operation, writes in _transactions(evidence):
        judged = [write for write in writes if visible.is_known(write)]
        there = [write for write in judged if visible.is_there(write)]
        if there and len(there) < len(judged):
            missing = [write for write in judged if not visible.is_there(write)]
            text = f"visible: {_names(there)}; missing: {_names(missing)}"
            yield Anomaly(AnomalyKind.TORN_TXN, text, (operation, *visible.finals(writes)))


class FinalVisibility:
    """Which writes the final reads show."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._finals = {name: final for final in evidence.history.finals for name in final.partitions}
        self._there: set[int] = set()
        self._ambiguous: set[int] = set()
        for final in evidence.history.finals:
            for read in final.reads:
                if self._finals.get(read.partition) is final:
                    self._attribute(read)

    def _attribute(self, read: Read) -> None:
        candidates = self._evidence.candidates(read)
        found = self._there if len(candidates) == 1 else self._ambiguous
        found.update(write.number for write in candidates)

    def is_known(self, write: Write) -> bool:
        """Return whether a final read shows whether this write is there."""
        final = self._finals.get(write.send.partition)
        end = write.operation.end
        was_over = final is not None and (end is None or end <= final.start)
        return was_over and (write.number not in self._ambiguous or write.number in self._there)

    def is_there(self, write: Write) -> bool:
        """Return whether this very write is there."""
        return write.number in self._there

    def finals(self, writes: list[Write]) -> tuple[Operation, ...]:
        """Return the final reads of the partitions of some writes."""
        found = (self._finals.get(write.send.partition) for write in writes)
        return tuple(dict.fromkeys(final for final in found if final is not None))


def _transactions(evidence: Evidence) -> Iterator[tuple[Operation, list[Write]]]:
    """Yield each transaction that wrote twice or more, with its writes, which are neighbours."""
    writes = iter(evidence.writes)
    for operation in evidence.history.operations:
        own = [next(writes) for _ in operation.sends]
        if operation.kind is Kind.TXN and len(own) > 1:
            yield operation, own


def _names(writes: list[Write]) -> str:
    return ", ".join(f"{write.send.partition} {write.send.value!r}" for write in writes)
