"""Pass C, second part: committed values that readers missed."""

from collections.abc import Iterator

from oncelog.clients.history.anomaly import Anomaly, AnomalyKind
from oncelog.clients.history.evidence import Evidence, Write
from oncelog.clients.history.operation import Operation
from oncelog.clients.history.version_order import VersionOrder


def check_lost_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Find committed values below one that an ok operation read, which no operation read that may have happened.

    What an operation of unknown outcome read, its group may have passed with it; what one that failed read must be read
    again. The bound takes the first index of what was read, and a value counts by its last index, so that a duplicate
    makes no other value look lost.
    """
    for partition, order in evidence.orders.items():
        read = evidence.read_by_ok.get(partition)
        if not read:
            continue
        bound, top = max((order.first(value) or 0, value) for value in read)
        yield from _unread_below(evidence, partition, order, bound, top)


def _unread_below(evidence: Evidence, partition: str, order: VersionOrder, bound: int, top: str) -> Iterator[Anomaly]:
    read, maybe_read = evidence.read_by_ok[partition], evidence.read_by_info.get(partition, ())
    for value in order.values():
        last = order.last(value)
        if value in read or value in maybe_read or last is None or last > bound:
            continue
        for write in evidence.writers(partition, value):
            if evidence.is_committed(write):
                text = f"{partition} offset {order.offsets[last]}: {value!r} was never read, and {top!r} above it was"
                reader = evidence.first_reader(partition, top)
                yield Anomaly(AnomalyKind.LOST_WRITE, text, (write.operation, *reader))


def check_final_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find committed writes that ended before the final read of their partition and are not in it."""
    finals: dict[str, tuple[Operation, frozenset[str]] | None] = {}
    for write in evidence.writes:
        partition = write.send.partition
        if partition not in finals:
            finals[partition] = _final_values(evidence, partition)
        found = finals[partition]
        if found is not None and write.send.value not in found[1] and _must_be_in(evidence, write, found[0]):
            final = found[0]
            where = f"{partition}: {write.send.value!r}"
            if evidence.may_be_read(write):
                reader = evidence.first_reader(partition, write.send.value)
                proof = (write.operation, *reader, final)
                yield Anomaly(AnomalyKind.VANISHED, f"{where} was read, and is not there in the end", proof)
            else:
                text = f"{where} was committed, and is not there in the end"
                yield Anomaly(AnomalyKind.UNSEEN, text, (write.operation, final))


def _must_be_in(evidence: Evidence, write: Write, final: Operation) -> bool:
    end = write.operation.end
    return evidence.is_committed(write) and (end is None or end <= final.start)


def _final_values(evidence: Evidence, partition: str) -> tuple[Operation, frozenset[str]] | None:
    """Return the final read of a partition, and the values in it."""
    final = evidence.history.final_read(partition)
    if final is None:
        return None
    return final, frozenset(read.value for read in final.reads if read.partition == partition)
