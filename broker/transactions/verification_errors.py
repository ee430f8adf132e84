"""What a transaction coordinator's errors mean to a producer that wrote, by what its request's version understands.

A partition leader sends verification requests on behalf of a producer, so the producer may receive errors that its own
request did not cause. A transient error becomes one on which every client only retries: NOT_ENOUGH_REPLICAS for
batches, since it does not make the client look up the leader again, and COORDINATOR_LOAD_IN_PROGRESS for offsets. An
error that breaks the transaction is TRANSACTION_ABORTABLE from the first version on that knows it, INVALID_TXN_STATE
before. (Kafka: AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend,
CoordinatorOperationExceptionHelper.)
"""

from enum import Enum, auto
from typing import Final

from oncelog.coordinator.log_errors import coordinator_error
from oncelog.protocol.errors import ErrorCode

_FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
_FIRST_OFFSET_COMMIT_WITH_ABORTABLE: Final = 4
_FIRST_OFFSET_COMMIT_THAT_ADDS: Final = 5


class TransactionSupportedOperation(Enum):
    """What a request's version lets the leader do about its transaction."""

    DEFAULT_ERROR = auto()
    """Verify that the partition is in it."""
    GENERIC_ERROR_SUPPORTED = auto()
    """The same, and the client knows TRANSACTION_ABORTABLE."""
    ADD_PARTITION = auto()
    """Add the partition to it: a client of version 2 does not add partitions beforehand."""

    @property
    def adds_partitions(self) -> bool:
        return self is TransactionSupportedOperation.ADD_PARTITION


def operation_of_produce(version: int) -> TransactionSupportedOperation:
    return _operation(version, _FIRST_PRODUCE_WITH_ABORTABLE, FIRST_PRODUCE_THAT_ADDS)


def operation_of_txn_offset_commit(version: int) -> TransactionSupportedOperation:
    return _operation(version, _FIRST_OFFSET_COMMIT_WITH_ABORTABLE, _FIRST_OFFSET_COMMIT_THAT_ADDS)


def _operation(version: int, first_with_abortable: int, first_that_adds: int) -> TransactionSupportedOperation:
    if version >= first_that_adds:
        return TransactionSupportedOperation.ADD_PARTITION
    if version >= first_with_abortable:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


UNREACHABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""No coordinator decided: it is unreachable, loading or elsewhere."""
UNDECIDED: Final = UNREACHABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""A retry can have another result."""


def produce_error(error: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """Return the error of a batch. Clients of version 2 get CONCURRENT_TRANSACTIONS as it is: they meet it often.

    OPERATION_NOT_ATTEMPTED: another partition of the same request could not be added; this one may be, the next time.
    UNKNOWN_SERVER_ERROR: the coordinator failed; to a producer that would be the end of its idempotence.
    """
    if error in UNREACHABLE or error in (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_SERVER_ERROR):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds_partitions:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _decided(error, operation)


def offset_commit_error(error: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """Return the error of offsets."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds_partitions:
        # Clients of this age do not all know it here.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(_decided(error, operation))


def _decided(error: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionSupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return error
