"""EndTxn from a client.

Source: ``endTransactionWithTV1`` and ``endTransaction`` of ``TransactionCoordinator``, ``prepareAbortOrCommit`` of
``TransactionMetadata``. Protocol 1 asks producer id, epoch, pending, state in this order; protocol 2 asks pending
first, because the client may have a producer id that is still being written (KAFKA-19367).
"""

from typing import Final

from tests.unit.coordinator.transaction.tables.decision_table import Cell, DecisionTable
from tests.unit.coordinator.transaction.tables.relations import (
    EPOCHS,
    IDS,
    PENDING,
    SENT,
    STATES,
    is_possible_producer,
)


def _is_possible(cell: Cell) -> bool:
    """How the transaction before was ended is looked at where somebody may ask again."""
    is_requested = (cell["protocol"], cell["pending"], cell["id"]) == ("2", "no", "present")
    is_ended = cell["state"] not in ("Empty", "Ongoing")
    return is_possible_producer(cell) and (cell["client version"] == "2" or (is_requested and is_ended))


END_TXN: Final = DecisionTable(
    name="EndTxn",
    dimensions={
        "protocol": ("1", "2"),
        "end": ("commit", "abort"),
        "state": STATES,
        "pending": PENDING,
        "epoch": EPOCHS,
        "id": IDS,
        "sent": SENT,
        "client version": ("2", "0"),
    },
    text="""
| protocol | end | state | pending | epoch | id | sent | client version | outcome | because |
|---|---|---|---|---|---|---|---|---|---|
| 1 | any | any | any | any | not present | any | any | MAPPING | |
| 1 | any | any | any | any | present | not same | any | FENCED | KAFKA-9600: exactly the present epoch |
| 1 | any | any | yes | any | present | same | any | BUSY | |
| 1 | any | Empty | no | any | present | same | any | STATE | there is nothing to end |
| 1 | commit | Ongoing | no | any | present | same | any | commit 1 | |
| 1 | abort | Ongoing | no | any | present | same | any | abort 1 | |
| 1 | commit | PrepareCommit | no | any | present | same | any | BUSY | a retry |
| 1 | abort | PrepareCommit | no | any | present | same | any | STATE | it was decided otherwise |
| 1 | commit | PrepareAbort | no | any | present | same | any | STATE | it was decided otherwise |
| 1 | abort | PrepareAbort | no | any | present | same | any | BUSY | a retry |
| 1 | commit | CompleteCommit | no | any | present | same | any | done | a retry, or KAFKA-17754: indistinguishable |
| 1 | abort | CompleteCommit | no | any | present | same | any | STATE | |
| 1 | commit | CompleteAbort | no | any | present | same | any | STATE | |
| 1 | abort | CompleteAbort | no | any | present | same | any | done | a retry, or KAFKA-17754: indistinguishable |
| 2 | any | any | yes | any | any | any | any | BUSY | KAFKA-19367: first of all |
| 2 | any | any | no | any | other | any | any | MAPPING | |
| 2 | any | any | no | any | previous | not 32766 | any | MAPPING | |
| 2 | any | Empty / Ongoing | no | any | previous | 32766 | any | FENCED | a transaction later |
| 2 | any | PrepareCommit / PrepareAbort | no | any | previous | 32766 | any | FENCED | a transaction later |
| 2 | commit | CompleteCommit | no | any | previous | 32766 | any | done | a retry; the response has the new id |
| 2 | abort | CompleteCommit | no | any | previous | 32766 | any | STATE | a retry with another end |
| 2 | commit | CompleteAbort | no | any | previous | 32766 | any | STATE | a retry with another end |
| 2 | abort | CompleteAbort | no | any | previous | 32766 | any | done | a retry; the response has the new id |
| 2 | any | Empty / Ongoing | no | any | present | not same | any | FENCED | |
| 2 | any | PrepareCommit / PrepareAbort | no | any | present | not -1 | any | FENCED | prepared with the next epoch |
| 2 | any | CompleteCommit / CompleteAbort | no | any | present | -2 / +1 / 32766 | any | FENCED | |
| 2 | commit | Ongoing | no | 7 / 0 | present | same | any | commit | |
| 2 | commit | Ongoing | no | 32766 | present | same | any | commit, new id | KAFKA-18660: the epochs have run out |
| 2 | commit | Ongoing | no | 32767 | present | same | any | FENCED | ≠ Kafka: an exception; no producer has it |
| 2 | abort | Ongoing | no | 7 / 0 | present | same | any | abort | |
| 2 | abort | Ongoing | no | 32766 | present | same | any | abort, new id | KAFKA-18660: the epochs have run out |
| 2 | abort | Ongoing | no | 32767 | present | same | any | abort at 32767 | KAFKA-20090: to get out of it |
| 2 | commit | PrepareCommit | no | any | present | -1 | 2 | BUSY | a retry |
| 2 | abort | PrepareCommit | no | any | present | -1 | 2 | STATE | a retry with another end |
| 2 | commit | PrepareAbort | no | any | present | -1 | 2 | STATE | a retry with another end |
| 2 | abort | PrepareAbort | no | any | present | -1 | 2 | BUSY | a retry |
| 2 | commit | CompleteCommit | no | 7 / 32766 | present | -1 | 2 | done | a retry |
| 2 | abort | CompleteCommit | no | 7 / 32766 | present | -1 | 2 | STATE | a retry with another end |
| 2 | commit | CompleteAbort | no | 7 / 32766 | present | -1 | 2 | STATE | a retry with another end |
| 2 | abort | CompleteAbort | no | 7 / 32766 | present | -1 | 2 | done | a retry |
| 2 | any | CompleteCommit / CompleteAbort | no | 32767 | present | -1 | 2 | FENCED | ≠ Kafka: a retry, returns 32767 |
| 2 | any | PrepareCommit / PrepareAbort | no | any | present | -1 | 0 | FENCED | ≠ Kafka: a retry; it was replaced |
| 2 | any | CompleteCommit / CompleteAbort | no | any | present | -1 | 0 | FENCED | ≠ Kafka: a retry; it was replaced |
| 2 | commit | Empty | no | any | present | same | any | STATE | KAFKA-18401: never sent |
| 2 | commit | CompleteCommit / CompleteAbort | no | any | present | same | any | STATE | KAFKA-18401: never sent |
| 2 | abort | Empty | no | 7 / 0 | present | same | any | abort nothing | KAFKA-18464 |
| 2 | abort | CompleteCommit / CompleteAbort | no | 7 / 0 | present | same | any | abort nothing | KAFKA-18464 |
| 2 | abort | Empty | no | 32766 | present | same | any | abort nothing, new id | |
| 2 | abort | CompleteCommit / CompleteAbort | no | 32766 | present | same | any | abort nothing, new id | |
| 2 | abort | Empty | no | 32767 | present | same | any | abort nothing at 32767 | |
| 2 | abort | CompleteCommit / CompleteAbort | no | 32767 | present | same | any | abort nothing at 32767 | |
""",
    is_possible=_is_possible,
    columns=("end", "sent"),
)
