"""How the pure functions decide a cell: the request that it names, put to the transaction that it names."""

from oncelog.coordinator.transaction.state import (
    NO_PRODUCER_ID,
    Missing,
    Transaction,
    TransactionMetadata,
    decide_add_partitions,
    decide_completion,
    decide_end_txn,
    decide_expiration,
    decide_init_producer_id,
    decide_timeout,
    verify_partitions,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.tables.decision_table import Cell
from tests.unit.coordinator.transaction.tables.init_producer_id import expected_of
from tests.unit.coordinator.transaction.tables.relations import (
    KNOWN,
    NEW,
    NEW_ID,
    NOW,
    REQUESTED_TIMEOUT_MS,
    START,
    TIMEOUT_MS,
    metadata_of,
    producer_of,
)

Decision = TransactionMetadata | ErrorCode | Missing | None


def transaction_of(cell: Cell) -> Transaction:
    """What the coordinator has, with some transition pending if the cell says so."""
    txn = Transaction("id", metadata_of(cell))
    if cell.get("pending") == "yes":
        txn.pending = txn.metadata
    return txn


def client_version(cell: Cell) -> int:
    return 2 if cell["protocol"] == "2" else 0


def requested(cell: Cell) -> frozenset[TopicPartition]:
    return frozenset({KNOWN if cell["partitions"] == "known" else NEW})


def end_txn(cell: Cell, new_id: int = NEW_ID) -> Decision:
    return decide_end_txn(
        transaction_of(cell),
        producer_of(cell),
        cell["end"] == "commit",
        NOW,
        client_version=client_version(cell),
        new_producer_id=new_id,
    )


def init_producer_id(cell: Cell, new_id: int = NEW_ID) -> Decision:
    return decide_init_producer_id(
        transaction_of(cell),
        REQUESTED_TIMEOUT_MS,
        expected_of(cell),
        new_id,
        NOW,
        transaction_version=int(cell["level"]),
    )


def add_partitions(cell: Cell, _: int = NO_PRODUCER_ID) -> Decision:
    return decide_add_partitions(
        transaction_of(cell), producer_of(cell), requested(cell), NOW, client_version=client_version(cell)
    )


def verify(cell: Cell, _: int = NO_PRODUCER_ID) -> Decision:
    verdict = verify_partitions(transaction_of(cell), producer_of(cell), requested(cell))
    if isinstance(verdict, ErrorCode):
        return verdict
    (error,) = verdict.values()
    return error


def timeout(cell: Cell, new_id: int = NEW_ID) -> Decision:
    """At the last moment that is in time, or right after it."""
    now_ms = START + TIMEOUT_MS + (cell["elapsed"] == "yes")
    decision = decide_timeout(
        transaction_of(cell), now_ms, transaction_version=int(cell["level"]), new_producer_id=new_id
    )
    return decision._replace(last_update_ms=NOW) if isinstance(decision, TransactionMetadata) else decision


def completion(cell: Cell, _: int = NO_PRODUCER_ID) -> Decision:
    return decide_completion(transaction_of(cell), NOW)


def expiration(cell: Cell, _: int = NO_PRODUCER_ID) -> Decision:
    """One millisecond too early, or in time."""
    expiration_ms = NOW - START
    decision = decide_expiration(transaction_of(cell), expiration_ms, NOW - (cell["idle"] == "no"))
    return None if decision is None else decision._replace(last_update_ms=NOW)
