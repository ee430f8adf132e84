"""AddPartitionsToTxn: adding, and only asking (verify).

Source: ``handleAddPartitionsToTransaction`` and ``handleVerifyPartitionsInTransaction`` of ``TransactionCoordinator``,
``prepareAddPartitions`` of ``TransactionMetadata``. AddOffsetsToTxn adds the partition of a group's offsets. Who only
asks is decided from what is durable, also while a transition is pending (KAFKA-14904).
"""

from typing import Final

from tests.unit.coordinator.transaction.tables.decision_table import Cell, DecisionTable
from tests.unit.coordinator.transaction.tables.relations import (
    IDS,
    OPEN,
    PENDING,
    SENT,
    STATES,
    is_possible_producer,
)


def _is_possible(cell: Cell) -> bool:
    return is_possible_producer(cell) and (cell["partitions"] == "new" or cell["state"] in OPEN)


ADD_PARTITIONS: Final = DecisionTable(
    name="AddPartitionsToTxn",
    dimensions={
        "protocol": ("1", "2"),
        "state": STATES,
        "pending": PENDING,
        "epoch": ("7", "0", "32766"),
        "id": IDS,
        "partitions": ("known", "new"),
        "sent": SENT,
    },
    text="""
| protocol | state | pending | epoch | id | partitions | sent | outcome | because |
|---|---|---|---|---|---|---|---|---|
| any | any | yes | any | any | any | any | BUSY | KAFKA-19367: first of all |
| any | any | no | any | not present | any | any | MAPPING | |
| any | any | no | any | present | any | not same | FENCED | |
| any | PrepareCommit / PrepareAbort | no | any | present | any | same | BUSY | KAFKA-18654, 18575 |
| any | Ongoing | no | any | present | known | same | done | nothing is written |
| any | Ongoing | no | any | present | new | same | add | |
| any | Empty / CompleteCommit / CompleteAbort | no | any | present | any | same | begin | |
""",
    is_possible=_is_possible,
    columns=("partitions", "sent"),
)

VERIFY_PARTITIONS: Final = DecisionTable(
    name="AddPartitionsToTxn, verify only",
    dimensions={
        "state": STATES,
        "pending": PENDING,
        "epoch": ("7", "0", "32766"),
        "id": IDS,
        "partitions": ("known", "new"),
        "sent": SENT,
    },
    text="""
| state | pending | epoch | id | partitions | sent | outcome | because |
|---|---|---|---|---|---|---|---|
| any | any | any | not present | any | any | MAPPING | |
| any | any | any | present | any | not same | FENCED | |
| PrepareCommit / PrepareAbort | any | any | present | any | same | BUSY | |
| Ongoing | any | any | present | known | same | done | KAFKA-14904: pending or not |
| Ongoing | any | any | present | new | same | ABORTABLE | KIP-890 |
| Empty / CompleteCommit / CompleteAbort | any | any | present | any | same | ABORTABLE | KAFKA-14402: no transaction |
""",
    is_possible=_is_possible,
    columns=("partitions", "sent"),
)
