"""What the coordinator does by itself: time-outs, completion, expiry.

Source: ``timedOutTransactions``, ``shouldExpire`` and ``removeExpiredTransactionalIds`` of ``TransactionStateManager``,
``abortTimedOutTransactions`` of ``TransactionCoordinator``; ``prepareFenceProducerEpoch``, ``prepareAbortOrCommit``,
``prepareComplete`` and ``prepareDead`` of ``TransactionMetadata``. What it ends itself, it ends by the finalised level.
"""

from typing import Final

from tests.unit.coordinator.transaction.tables.decision_table import Cell, DecisionTable
from tests.unit.coordinator.transaction.tables.relations import EPOCHS, PENDING, STATES


def _always(_: Cell) -> bool:
    return True


TIMEOUT: Final = DecisionTable(
    name="The time-out of a transaction",
    dimensions={
        "level": ("1", "2"),
        "state": STATES,
        "pending": PENDING,
        "elapsed": ("no", "yes"),
        "epoch": EPOCHS,
    },
    text="""
| level | state | pending | elapsed | epoch | outcome | because |
|---|---|---|---|---|---|---|
| any | not Ongoing | any | any | any | nothing | |
| any | Ongoing | any | no | any | nothing | |
| any | Ongoing | yes | yes | any | nothing | the next sweep will see |
| 1 | Ongoing | no | yes | not 32767 | fence 1 | KAFKA-6119: abort and bump in one record |
| 1 | Ongoing | no | yes | 32767 | fence 1 at 32767 | KAFKA-20090 |
| 2 | Ongoing | no | yes | 7 / 0 | abort | KAFKA-6119: abort and bump in one record |
| 2 | Ongoing | no | yes | 32766 | abort, new id | KAFKA-20322: also when the coordinator ends it |
| 2 | Ongoing | no | yes | 32767 | abort at 32767 | KAFKA-20090 |
""",
    is_possible=_always,
    columns=("epoch",),
)

COMPLETION: Final = DecisionTable(
    name="The last marker is written",
    dimensions={
        "state": ("PrepareCommit", "PrepareAbort"),
        "client version": ("0", "2"),
        "next id": ("none", "set aside"),
        "epoch": EPOCHS,
    },
    text="""
| state | client version | next id | epoch | outcome | because |
|---|---|---|---|---|---|
| PrepareCommit | 0 | any | any | committed | |
| PrepareAbort | 0 | any | any | aborted | |
| PrepareCommit | 2 | none | any | committed | |
| PrepareAbort | 2 | none | any | aborted | |
| PrepareCommit | 2 | set aside | any | committed, new id | KAFKA-20310: also after a failover |
| PrepareAbort | 2 | set aside | any | aborted, new id | KAFKA-20310: also after a failover |
""",
    is_possible=_always,
    columns=("epoch",),
)

EXPIRATION: Final = DecisionTable(
    name="The expiry of a transactional id",
    dimensions={"state": STATES, "pending": PENDING, "idle": ("no", "yes")},
    text="""
| state | pending | idle | outcome | because |
|---|---|---|---|---|
| any | any | no | nothing | |
| any | yes | yes | nothing | |
| Ongoing / PrepareCommit / PrepareAbort | no | yes | nothing | KAFKA-12671: an open transaction keeps it |
| Empty / CompleteCommit / CompleteAbort | no | yes | forget | its tombstone is written |
""",
    is_possible=_always,
    columns=("idle",),
)
