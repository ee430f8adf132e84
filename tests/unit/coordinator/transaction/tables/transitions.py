"""The transitions that the tables name: what the next record of the transaction log says.

Source: the ``prepare…`` methods of ``TransactionMetadata``. Each column names a field; a word says where its value
comes from. Outcomes that are no transition are the errors, ``done`` (success, nothing is written) and ``nothing``.
"""

from typing import Any, Final

from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.tables.decision_table import Cell, rows
from tests.unit.coordinator.transaction.tables.relations import (
    KNOWN,
    NEW,
    NEW_ID,
    NOW,
    REQUESTED_TIMEOUT_MS,
    state_of,
)

ERRORS: Final = {
    "BUSY": ErrorCode.CONCURRENT_TRANSACTIONS,
    "FENCED": ErrorCode.PRODUCER_FENCED,
    "MAPPING": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "STATE": ErrorCode.INVALID_TXN_STATE,
    "ABORTABLE": ErrorCode.TRANSACTION_ABORTABLE,
    "done": ErrorCode.NONE,
}
NOTHING: Final = "nothing"

TRANSITIONS_TEXT: Final = """
| outcome | state | producer id | epoch | last epoch | next id | timeout | partitions | start | client version |
|---|---|---|---|---|---|---|---|---|---|
| commit 1 | PrepareCommit | kept | kept | kept | none | kept | kept | kept | 0 |
| abort 1 | PrepareAbort | kept | kept | kept | none | kept | kept | kept | 0 |
| commit | PrepareCommit | kept | +1 | the old one | none | kept | kept | kept | 2 |
| commit, new id | PrepareCommit | kept | +1 | the old one | new | kept | kept | kept | 2 |
| abort | PrepareAbort | kept | +1 | the old one | none | kept | kept | kept | 2 |
| abort, new id | PrepareAbort | kept | +1 | the old one | new | kept | kept | kept | 2 |
| abort at 32767 | PrepareAbort | kept | kept | the old one | new | kept | kept | kept | 2 |
| abort nothing | PrepareAbort | kept | +1 | the old one | none | kept | none | now | 2 |
| abort nothing, new id | PrepareAbort | kept | +1 | the old one | new | kept | none | now | 2 |
| abort nothing at 32767 | PrepareAbort | kept | kept | the old one | new | kept | none | now | 2 |
| fence 1 | PrepareAbort | kept | +1 | none | none | kept | kept | kept | 0 |
| fence 1 at 32767 | PrepareAbort | kept | kept | none | none | kept | kept | kept | 0 |
| bump | Empty | kept | +1 | none | none | requested | none | none | kept |
| bump, last known | Empty | kept | +1 | the old one | none | requested | none | none | kept |
| repeat | Empty | kept | kept | kept | none | requested | none | none | kept |
| rotate | Empty | new | 0 | none | none | requested | none | none | kept |
| rotate, last known | Empty | new | 0 | the old one | none | requested | none | none | kept |
| begin | Ongoing | kept | kept | kept | none | kept | added | now | of the request |
| add | Ongoing | kept | kept | kept | none | kept | added | kept | of the request |
| committed | CompleteCommit | kept | kept | kept | none | kept | none | kept | kept |
| aborted | CompleteAbort | kept | kept | kept | none | kept | none | kept | kept |
| committed, new id | CompleteCommit | next | 0 | kept | none | kept | none | kept | kept |
| aborted, new id | CompleteAbort | next | 0 | kept | none | kept | none | kept | kept |
| forget | Dead | kept | kept | kept | none | kept | none | kept | kept |
"""

_HEADER, *_LINES = rows(TRANSITIONS_TEXT)
EFFECTS: Final = {line[0]: dict(zip(_HEADER[1:], line[1:], strict=True)) for line in _LINES}
_NO_ID = _NO_EPOCH = _NO_TIME = -1


def next_metadata(before: TransactionMetadata, outcome: str, cell: Cell) -> TransactionMetadata:
    """The record that a transition writes. Every one of them remembers the producer id of the one before."""
    effect = EFFECTS[outcome]
    values: dict[str, dict[str, Any]] = {
        "producer id": {"kept": before.producer_id, "new": NEW_ID, "next": before.next_producer_id},
        "epoch": {"kept": before.producer_epoch, "+1": before.producer_epoch + 1, "0": 0},
        "last epoch": {
            "kept": before.last_producer_epoch,
            "none": _NO_EPOCH,
            "the old one": before.producer_epoch,
        },
        "next id": {"none": _NO_ID, "new": NEW_ID},
        "timeout": {"kept": before.timeout_ms, "requested": REQUESTED_TIMEOUT_MS},
        "partitions": {
            "kept": before.partitions,
            "none": frozenset(),
            "added": before.partitions | {KNOWN if cell.get("partitions") == "known" else NEW},
        },
        "start": {"kept": before.start_ms, "none": _NO_TIME, "now": NOW},
        "client version": {
            "kept": before.client_transaction_version,
            "of the request": 2 if cell.get("protocol") == "2" else 0,
            "0": 0,
            "2": 2,
        },
    }
    picked = {name: choices[effect[name]] for name, choices in values.items()}
    return before._replace(
        state=state_of(effect["state"]),
        producer_id=picked["producer id"],
        producer_epoch=picked["epoch"],
        last_producer_epoch=picked["last epoch"],
        previous_producer_id=before.producer_id,
        next_producer_id=picked["next id"],
        timeout_ms=picked["timeout"],
        partitions=picked["partitions"],
        start_ms=picked["start"],
        last_update_ms=NOW,
        client_transaction_version=picked["client version"],
    )
