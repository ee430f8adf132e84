"""Pass C, second part: committed values that readers missed."""

from collections.abc import Iterator, Mapping

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
    finals = {name: final for final in evidence.history.finals for name in final.partitions}
    there = _final_values(finals)
    for write in evidence.writes:
        partition, value = write.send.partition, write.send.value
        final = finals.get(partition)
        if final is None or value in there[partition] or not _must_be_in(evidence, write, final):
            continue
        if evidence.may_be_read(write):
            proof = (write.operation, *evidence.first_reader(partition, value), final)
            yield Anomaly(AnomalyKind.VANISHED, f"{partition}: {value!r} was read, and is not there in the end", proof)
        else:
            text = f"{partition}: {value!r} was committed, and is not there in the end"
            yield Anomaly(AnomalyKind.UNSEEN, text, (write.operation, final))


def _must_be_in(evidence: Evidence, write: Write, final: Operation) -> bool:
    end = write.operation.end
    return evidence.is_committed(write) and (end is None or end <= final.start)


def _final_values(finals: Mapping[str, Operation]) -> dict[str, set[str]]:
    """Return the values that the last final read of each partition has."""
    found: dict[str, set[str]] = {partition: set() for partition in finals}
    for final in dict.fromkeys(finals.values()):
        for read in final.reads:
            if finals[read.partition] is final:
                found[read.partition].add(read.value)
    return found
