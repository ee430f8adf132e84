"""A measure, not an anomaly: how long a record was known to exist when a consumer still had not read it.

It is what remained behind the last record of an operation when the operation was started; a consumer that takes few
records at a time has a backlog, and so a lag.
"""

from collections import defaultdict

from oncelog.clients.history.evidence import Evidence
from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send


def worst_realtime_lag(evidence: Evidence) -> int:
    """Return the longest lag of any ok operation, in nanoseconds."""
    known = _known_since(evidence)
    worst = 0
    for operation in evidence.history.operations:
        if operation.outcome is Outcome.OK and operation.kind is not Kind.FINAL:
            for partition, index in _highest(evidence, operation).items():
                since = known[partition][index + 1]
                if since is not None:
                    worst = max(worst, operation.start - since)
    return worst


def _highest(evidence: Evidence, operation: Operation) -> dict[str, int]:
    highest: dict[str, int] = {}
    for read in operation.reads:
        index = evidence.orders[read.partition].index(read.offset, read.value)
        if index is not None:
            highest[read.partition] = max(index, highest.get(read.partition, index))
    return highest


def _known_since(evidence: Evidence) -> dict[str, list[int | None]]:
    """Return, by partition and index, since when a record there or above is known; None behind the last one."""
    since: dict[str, list[int | None]] = {name: [None] * (len(order) + 1) for name, order in evidence.orders.items()}
    seen: dict[str, dict[int, int]] = defaultdict(dict)
    for operation in evidence.history.operations:
        if operation.outcome is Outcome.OK and operation.end is not None:
            records: list[Read | Send] = [*operation.reads, *operation.sends]
            for record in records:
                order = evidence.orders.get(record.partition)
                index = None if order is None or record.offset is None else order.index(record.offset, record.value)
                if index is not None:
                    of_partition = seen[record.partition]
                    of_partition[index] = min(operation.end, of_partition.get(index, operation.end))
    for name, times in since.items():
        for index in range(len(times) - 2, -1, -1):
            candidates = [time for time in (times[index + 1], seen[name].get(index)) if time is not None]
            times[index] = min(candidates, default=None)
    return since
