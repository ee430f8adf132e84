"""The cause of each step in the history of a transactional id, and the producer that the step fenced. Pure.

A record may hold the cause (``cause``, which only Oncelog's brokers write, for a step that the producer did not
request). Otherwise it is derived from the two records, by the rules of a coordinator (Kafka's TransactionMetadata and
TransactionCoordinator, 4.3):

* InitProducerId bumps the epoch, or takes a new producer id when the epochs are used up, and leads to Empty.
* EndTxn of version 1 keeps the epoch; of version 2 it bumps it, which does not fence the producer: the response has the
  new epoch.
* A coordinator that aborts without EndTxn bumps the epoch: because the transaction timed out, or for an InitProducerId.
  It does so in the protocol version that the cluster has finalised, not in that of the producer.

So an abort of version 2 may have been requested by the producer or not; mostly the next record decides it. The command
line labels a derived cause as derived.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.clients.admin.transaction_records import TransactionSnapshot

_LAST_LIVE_EPOCH: Final = 32_766
_FIRST_THAT_BUMPS: Final = 2
_ROTATED: Final = ", and a new producer id: all epochs of the old one are used up"
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})
_BEFORE: Final = {
    "Empty": _AT_REST,
    "Ongoing": _AT_REST | {"Ongoing"},
    "PrepareCommit": frozenset({"Ongoing"}),
    "PrepareAbort": _AT_REST | {"Ongoing"},
    "CompleteCommit": frozenset({"PrepareCommit"}),
    "CompleteAbort": frozenset({"PrepareAbort"}),
}
"""{state: its possible predecessors}; any other means that the records between have been compacted away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The step that led to a record."""

    why: str
    is_derived: bool
    fenced: tuple[int, int] | None
    """The producer id and epoch of a producer that brokers refuse from this step on."""


class _Reason(NamedTuple):
    """The cause of a step, and whether it fenced the producer."""

    why: str
    fences: bool = False


def explain(snapshots: Sequence[TransactionSnapshot | None]) -> Iterator[Step]:
    """Yield the step that led to each record of an id, oldest first; None stands for a tombstone."""
    before: TransactionSnapshot | None = None
    owner: tuple[int, int] | None = None
    for index, after in enumerate(snapshots):
        reason = _derive(before, after, snapshots[index + 1 :])
        cause = _recorded_cause(after)
        fences = reason.fences or (cause is not None and _is_another_producer(before, after))
        yield Step(why=cause or reason.why, is_derived=cause is None, fenced=owner if fences else None)
        owner = _owner(owner, after, fences)
        before = after


def _owner(owner: tuple[int, int] | None, after: TransactionSnapshot | None, fences: bool) -> tuple[int, int] | None:
    """Return the id and epoch that a producer has; None after an abort, whose epoch no producer gets."""
    if after is None or (fences and after.state not in _AT_REST):
        return None
    is_given = owner is not None or after.state in ("Empty", "Ongoing")
    return (after.producer_id, after.producer_epoch) if is_given else None


def _recorded_cause(after: TransactionSnapshot | None) -> str | None:
    """Return the cause in a record; that of a complete transaction belongs to the step before."""
    return None if after is None or after.state.startswith("Complete") else after.cause


def _is_another_producer(before: TransactionSnapshot | None, after: TransactionSnapshot | None) -> bool:
    if before is None or after is None:
        return False
    return (before.producer_id, before.producer_epoch) != (after.producer_id, after.producer_epoch)


def _derive(
    before: TransactionSnapshot | None, after: TransactionSnapshot | None, later: Sequence[TransactionSnapshot | None]
) -> _Reason:
    if after is None:
        return _Reason("the id was not used for transactional.id.expiration.ms, and is forgotten")
    if before is None:
        is_first = after.state == "Empty" and after.producer_epoch == 0
        return _Reason("InitProducerId" if is_first else "what led here is not in the log any more")
    if before.state not in _BEFORE.get(after.state, frozenset()):
        return _Reason("records between have been compacted away", _is_another_producer(before, after))
    match after.state:
        case "Empty":
            return _initialised(before, after)
        case "Ongoing":
            return _continued(before, after)
        case "PrepareCommit":
            return _Reason("EndTxn(commit) from its producer")
        case "PrepareAbort":
            return _aborted(before, after, later)
        case _:
            rotated = before.producer_id != after.producer_id
            return _Reason("all its partitions have their markers" + (_ROTATED if rotated else ""))


def _initialised(before: TransactionSnapshot, after: TransactionSnapshot) -> _Reason:
    """Return the cause of a step to Empty: InitProducerId."""
    if before.producer_id != after.producer_id:
        used_up = before.producer_epoch >= _LAST_LIVE_EPOCH
        return _Reason("InitProducerId" + (_ROTATED if used_up else ", with a new producer id"), fences=True)
    if before.producer_epoch == after.producer_epoch:
        return _Reason("InitProducerId, again, from the same producer")
    if after.producer_epoch == before.producer_epoch + 1:
        return _Reason("InitProducerId, from a new producer or the old one after an error", fences=True)
    return _Reason("InitProducerId; records between have been compacted away", fences=True)


def _continued(before: TransactionSnapshot, after: TransactionSnapshot) -> _Reason:
    """Return the cause of a step to Ongoing."""
    if before.state != "Ongoing":
        return _Reason("a transaction began")
    added = [str(each) for each in after.partitions if each not in before.partitions]
    return _Reason("added " + ", ".join(added) if added else "went on")


def _aborted(
    before: TransactionSnapshot, after: TransactionSnapshot, later: Sequence[TransactionSnapshot | None]
) -> _Reason:
    """Return the cause of a step to PrepareAbort: requested by the producer, or not."""
    if before.state != "Ongoing":
        return _Reason("EndTxn(abort) from its producer, which had no transaction")
    if before.producer_epoch == after.producer_epoch:
        return _Reason("EndTxn(abort) from its producer")
    if before.start_ms is not None and after.last_update_ms >= before.start_ms + before.timeout_ms:
        return _Reason(f"open for more than its time-out of {before.timeout_ms} ms", fences=True)
    follows = next((each.state for each in later if each is not None and each.state != "CompleteAbort"), None)
    if before.client_transaction_version < _FIRST_THAT_BUMPS or follows == "Empty":
        return _Reason("InitProducerId of a successor", fences=True)
    if follows is None:
        return _Reason("EndTxn(abort) from its producer, or InitProducerId of a successor")
    return _Reason("EndTxn(abort) from its producer")
