"""The error that each version of Produce and TxnOffsetCommit returns, against Kafka's rules written out by hand."""

import pytest

from oncelog.broker.transactions.verification_errors import (
    UNDECIDED,
    TransactionSupportedOperation,
    offset_commit_error,
    operation_of_produce,
    operation_of_txn_offset_commit,
    produce_error,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

E = ErrorCode
OLD, MIDDLE, NEW = TransactionSupportedOperation

PRODUCE = {
    E.NETWORK_EXCEPTION: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.COORDINATOR_LOAD_IN_PROGRESS: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.COORDINATOR_NOT_AVAILABLE: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.NOT_COORDINATOR: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.OPERATION_NOT_ATTEMPTED: (E.NOT_ENOUGH_REPLICAS,) * 3,
    # B35: Kafka returns it unchanged, and the producer takes it as fatal.
    E.UNKNOWN_SERVER_ERROR: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.CONCURRENT_TRANSACTIONS: (E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
    E.TRANSACTION_ABORTABLE: (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    E.PRODUCER_FENCED: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.INVALID_PRODUCER_EPOCH: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.INVALID_PRODUCER_ID_MAPPING: (E.INVALID_PRODUCER_ID_MAPPING,) * 3,
    E.INVALID_TXN_STATE: (E.INVALID_TXN_STATE,) * 3,
    E.UNKNOWN_TOPIC_OR_PARTITION: (E.UNKNOWN_TOPIC_OR_PARTITION,) * 3,
    E.NOT_LEADER_OR_FOLLOWER: (E.NOT_LEADER_OR_FOLLOWER,) * 3,
}
"""{the coordinator's error: what (Produce up to 10, 11, from 12 on) returns}"""

OFFSETS = {
    E.NETWORK_EXCEPTION: (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    E.COORDINATOR_LOAD_IN_PROGRESS: (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    E.COORDINATOR_NOT_AVAILABLE: (E.COORDINATOR_NOT_AVAILABLE,) * 3,
    E.NOT_COORDINATOR: (E.NOT_COORDINATOR,) * 3,
    # Kafka returns it in all versions; Oncelog does not in those whose clients may not know it here.
    E.CONCURRENT_TRANSACTIONS: (
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS,
    ),
    E.TRANSACTION_ABORTABLE: (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    E.PRODUCER_FENCED: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.INVALID_PRODUCER_EPOCH: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.INVALID_PRODUCER_ID_MAPPING: (E.INVALID_PRODUCER_ID_MAPPING,) * 3,
    E.INVALID_TXN_STATE: (E.INVALID_TXN_STATE,) * 3,
    E.UNKNOWN_TOPIC_OR_PARTITION: (E.COORDINATOR_NOT_AVAILABLE,) * 3,
    E.NOT_LEADER_OR_FOLLOWER: (E.NOT_COORDINATOR,) * 3,
}  # fmt: skip
"""{the coordinator's error: what (TxnOffsetCommit up to 3, 4, from 5 on) returns}"""


@pytest.mark.parametrize(("error", "expected"), PRODUCE.items())
def test_produce_error_depends_on_version(error: ErrorCode, expected: tuple[ErrorCode, ...]) -> None:
    assert tuple(produce_error(error, operation) for operation in (OLD, MIDDLE, NEW)) == expected


@pytest.mark.parametrize(("error", "expected"), OFFSETS.items())
def test_offset_commit_error_depends_on_version(error: ErrorCode, expected: tuple[ErrorCode, ...]) -> None:
    assert tuple(offset_commit_error(error, operation) for operation in (OLD, MIDDLE, NEW)) == expected


def test_undecided_verification_returns_retriable_errors_only() -> None:
    retried = {E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS}
    assert {produce_error(error, operation) for error in UNDECIDED for operation in (OLD, MIDDLE, NEW)} == retried


def test_operation_of_each_request_version_is_derived() -> None:
    produce = [operation_of_produce(version) for version in ProduceRequest.versions]
    assert produce == [OLD] * 11 + [MIDDLE] + [NEW] * 2
    offsets = [operation_of_txn_offset_commit(version) for version in TxnOffsetCommitRequest.versions]
    assert offsets == [OLD] * 4 + [MIDDLE, NEW]
