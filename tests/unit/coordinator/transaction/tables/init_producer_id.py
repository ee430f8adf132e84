"""InitProducerId of a transactional id that the coordinator knows.

Source: ``prepareInitProducerIdTransit`` of ``TransactionCoordinator``; ``prepareIncrementProducerEpoch``,
``prepareProducerIdRotation`` and ``prepareFenceProducerEpoch`` of ``TransactionMetadata``. Kafka aborts an open
transaction and answers CONCURRENT_TRANSACTIONS, so that the client asks again; here the request waits for that.
"""

from typing import Final

from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from tests.unit.coordinator.transaction.tables.decision_table import Cell, DecisionTable
from tests.unit.coordinator.transaction.tables.relations import (
    EPOCHS,
    OTHER_ID,
    PENDING,
    PRESENT_ID,
    PREVIOUS_ID,
    STATES,
)

EXPECTED: Final = ("none", "same", "-1", "-2", "+1", "previous 32766", "previous 32767", "previous 7", "other")


def expected_of(cell: Cell) -> ProducerIdAndEpoch | None:
    """What the request continues."""
    expected, held = cell["expected"], int(cell["epoch"])
    if expected == "none":
        return None
    if expected == "other":
        return ProducerIdAndEpoch(OTHER_ID, held)
    if expected.startswith("previous "):
        return ProducerIdAndEpoch(PREVIOUS_ID, int(expected.removeprefix("previous ")))
    return ProducerIdAndEpoch(PRESENT_ID, held + int(expected.replace("same", "0")))


def _is_possible(cell: Cell) -> bool:
    expected = expected_of(cell)
    if expected is None:
        return True
    return 0 <= expected.epoch <= 32_767 and (expected.id != PREVIOUS_ID or cell["epoch"] == "0")


INIT_PRODUCER_ID: Final = DecisionTable(
    name="InitProducerId",
    dimensions={
        "level": ("1", "2"),
        "state": STATES,
        "pending": PENDING,
        "epoch": EPOCHS,
        "last": ("known", "unknown"),
        "expected": EXPECTED,
    },
    text="""
| level | state | pending | epoch | last | expected | outcome | because |
|---|---|---|---|---|---|---|---|
| any | any | yes | any | any | any | BUSY | |
| any | any | no | any | any | other / previous 7 | FENCED | |
| any | PrepareCommit / PrepareAbort | no | any | any | not other / previous 7 | BUSY | |
| 1 | Ongoing | no | not 32767 | any | none / same | fence 1 | KAFKA-6119: abort and bump in one record |
| 1 | Ongoing | no | 32767 | any | none / same | fence 1 at 32767 | KAFKA-20090 |
| 2 | Ongoing | no | 7 / 0 | any | none / same | abort | KAFKA-6119: abort and bump in one record |
| 2 | Ongoing | no | 32766 | any | none / same | abort, new id | KAFKA-20322: also when the coordinator ends it |
| 2 | Ongoing | no | 32767 | any | none / same | abort at 32767 | KAFKA-20090 |
| any | Ongoing | no | any | any | -1 / -2 / +1 | FENCED | ≠ Kafka: as with the present epoch |
| any | Ongoing | no | any | any | previous 32766 / previous 32767 | FENCED | ≠ Kafka: as with the present epoch |
| any | Empty | no | 7 / 0 | any | none | bump | a new producer |
| any | Empty | no | 7 / 0 | any | same | bump, last known | KIP-360 |
| any | Empty | no | 7 | known | -1 | repeat | a retry of what succeeded |
| any | Empty | no | 0 | known | previous 32766 | repeat | a retry of what succeeded |
| any | Empty | no | 7 | unknown | -1 | FENCED | |
| any | Empty | no | 0 | unknown | previous 32766 | FENCED | |
| any | Empty | no | 0 | any | previous 32767 | FENCED | |
| any | Empty | no | 7 / 0 | any | -2 / +1 | FENCED | |
| any | Empty | no | 32766 / 32767 | any | none | rotate | KAFKA-18660 |
| any | Empty | no | 32766 / 32767 | any | same | rotate, last known | KAFKA-18660 |
| any | Empty | no | 32766 | known | -1 | repeat | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | Empty | no | 32766 | unknown | -1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | Empty | no | 32767 | any | -1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | Empty | no | 32766 / 32767 | any | -2 / +1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | CompleteCommit / CompleteAbort | no | 7 / 0 | any | none | bump | a new producer |
| any | CompleteCommit / CompleteAbort | no | 7 / 0 | any | same | bump, last known | KIP-360 |
| any | CompleteCommit / CompleteAbort | no | 7 | known | -1 | repeat | its transaction was ended for it |
| any | CompleteCommit / CompleteAbort | no | 0 | known | previous 32766 | repeat | its transaction was ended for it |
| any | CompleteCommit / CompleteAbort | no | 7 | unknown | -1 | FENCED | |
| any | CompleteCommit / CompleteAbort | no | 0 | unknown | previous 32766 | FENCED | |
| any | CompleteCommit / CompleteAbort | no | 0 | any | previous 32767 | FENCED | |
| any | CompleteCommit / CompleteAbort | no | 7 / 0 | any | -2 / +1 | FENCED | |
| any | CompleteCommit / CompleteAbort | no | 32766 / 32767 | any | none | rotate | KAFKA-18660 |
| any | CompleteCommit / CompleteAbort | no | 32766 / 32767 | any | same | rotate, last known | KAFKA-18660 |
| any | CompleteCommit / CompleteAbort | no | 32766 | known | -1 | repeat | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | CompleteCommit / CompleteAbort | no | 32766 | unknown | -1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | CompleteCommit / CompleteAbort | no | 32767 | any | -1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
| any | CompleteCommit / CompleteAbort | no | 32766 / 32767 | any | -2 / +1 | FENCED | ≠ Kafka: UNKNOWN_SERVER_ERROR |
""",
    is_possible=_is_possible,
    columns=("expected",),
)
