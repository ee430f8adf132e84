"""What the names of the tables mean, and a transaction for each of them.

Only relations matter to the rules, so each name stands for one example: the epoch that the coordinator has (``7`` is
any ordinary one), the producer id that a request has, and how its epoch relates to the coordinator's.
"""

from typing import Final

from oncelog.coordinator.transaction.state import ProducerIdAndEpoch, TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.tables.decision_table import Cell

PRESENT_ID: Final = 4000
PREVIOUS_ID: Final = 3999
OTHER_ID: Final = 9000
NEW_ID: Final = 5000
NOW: Final = 1_000_000
START: Final = 970_000
TIMEOUT_MS: Final = 60_000
REQUESTED_TIMEOUT_MS: Final = 45_000
KNOWN: Final = TopicPartition("orders", 0)
NEW: Final = TopicPartition("orders", 1)

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
PENDING: Final = ("no", "yes")
EPOCHS: Final = ("7", "0", "32766", "32767")
IDS: Final = ("present", "previous", "other")
SENT: Final = ("same", "-1", "-2", "+1", "32766")

MEANINGS: Final = {
    "protocol": "the transaction protocol of the request: 2 is EndTxn 5 and AddPartitionsToTxn 4 and 5, 1 all "
    "older versions (version 0 in Kafka's code and in the log)",
    "level": "the finalised `transaction.version`; 1 means 0 or 1",
    "state": "the state in the last durable record of this transactional id",
    "pending": "whether a transition has been decided and is not yet durable. While a prepared transaction waits for "
    "its markers, its completion is pending; Prepare… without a pending transition lasts only for a moment",
    "epoch": "the coordinator's producer epoch. 0 follows when the epochs of the previous producer id have run out; "
    "32766 is the last epoch that a producer may have; 32767 is used only to fence",
    "last": "whether the coordinator knows the epoch before the present one (for epoch 0: 32766 of the previous id)",
    "id": "the producer id of the request. The previous id has a meaning only with epoch 0",
    "sent": "the producer epoch of the request, relative to the coordinator's",
    "expected": "producer id and epoch that an InitProducerId continues, if any: an epoch next to the coordinator's, "
    "or one of the previous producer id, or another producer id",
    "partitions": "whether the partition is in the transaction already",
    "elapsed": "whether the time-out of the transaction has passed",
    "idle": "whether the transactional id was unused for `transactional.id.expiration.ms`",
    "client version": "the version of the client that ended the transaction, as in the Prepare… record; 2 if it has "
    "none",
    "next id": "whether the Prepare… record has a next producer id",
}

_LABELS: Final = {state.label: state for state in TransactionState}


def state_of(label: str) -> TransactionState:
    return _LABELS[label]


def sent_epoch(cell: Cell) -> int | None:
    """The epoch of a request. None if there is none, or if another name says it better."""
    held = int(cell["epoch"])
    epoch = 32_766 if cell["sent"] == "32766" else held + int(cell["sent"].replace("same", "0"))
    others = {held, held - 1, held - 2, held + 1}
    return None if not 0 <= epoch <= 32_767 or (cell["sent"] == "32766" and epoch in others) else epoch


def producer_of(cell: Cell) -> ProducerIdAndEpoch:
    """Who asks."""
    epoch = sent_epoch(cell)
    assert epoch is not None
    return ProducerIdAndEpoch({"present": PRESENT_ID, "previous": PREVIOUS_ID, "other": OTHER_ID}[cell["id"]], epoch)


def is_possible_producer(cell: Cell) -> bool:
    return sent_epoch(cell) is not None and (cell["id"] != "previous" or cell["epoch"] == "0")


def metadata_of(cell: Cell) -> TransactionMetadata:
    """What the coordinator has durable. Without a word about it the last epoch is known, the client is of version 2."""
    epoch = int(cell.get("epoch", 7))
    is_open = cell["state"] in OPEN
    last_epoch = 32_766 if epoch == 0 else epoch - 1
    return TransactionMetadata(
        producer_id=PRESENT_ID,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state_of(cell["state"]),
        partitions=frozenset({KNOWN}) if is_open else frozenset(),
        start_ms=START if is_open or cell["state"].startswith("Complete") else -1,
        last_update_ms=START,
        previous_producer_id=PREVIOUS_ID if epoch == 0 else PRESENT_ID,
        next_producer_id=NEW_ID if cell.get("next id") == "set aside" else -1,
        client_transaction_version=int(cell.get("client version", 2)),
        last_producer_epoch=last_epoch if cell.get("last", "known") == "known" else -1,
    )
