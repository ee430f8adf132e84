"""``oncelog txn states``: the transaction coordinator's state machine, printed from the code that runs.

Nothing here repeats the rules. The first table is ``TRANSITIONS``; the others ask the coordinator's own decisions what
each request does to a transactional id in each state, once for each version of the transaction protocol.
"""

from collections.abc import Callable
from typing import Final

from oncelog.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    Missing,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    decide_add_partitions,
    decide_completion,
    decide_end_txn,
    decide_expiration,
    decide_init_producer_id,
    decide_timeout,
)
from oncelog.coordinator.transaction.transaction_state import (
    PERSISTED_STATES,
    PREPARED_STATES,
    TRANSITIONS,
    TransactionState,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

_NOW_MS: Final = 1_000_000
_TIMEOUT_MS: Final = 60_000
_EXPIRATION_MS: Final = 100_000
_PRODUCER: Final = ProducerIdAndEpoch(4000, 7)
_NEW_PRODUCER_ID: Final = 4001
_PARTITIONS: Final = frozenset({TopicPartition("orders", 0)})
_MORE_PARTITIONS: Final = frozenset({TopicPartition("orders", 1)})

VERSIONS: Final = (1, 2)
Event = Callable[[Transaction], object]


def events(version: int) -> dict[str, Event]:
    """Return what can happen to a transactional id whose client and cluster have this version of the protocol."""
    client = EPOCH_BUMP_VERSION if version >= EPOCH_BUMP_VERSION else 0

    def init(txn: Transaction, expected: ProducerIdAndEpoch | None) -> object:
        return decide_init_producer_id(
            txn, _TIMEOUT_MS, expected, _NEW_PRODUCER_ID, _NOW_MS, transaction_version=version
        )

    def add(txn: Transaction, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]) -> object:
        return decide_add_partitions(txn, producer, partitions, _NOW_MS, client_version=client)

    def end(txn: Transaction, producer: ProducerIdAndEpoch, commit: bool) -> object:
        return decide_end_txn(txn, producer, commit, _NOW_MS, client_version=client, new_producer_id=_NEW_PRODUCER_ID)

    return {
        "InitProducerId": lambda txn: init(txn, None),
        "InitProducerId with the present epoch": lambda txn: init(txn, txn.metadata.producer),
        "InitProducerId with the epoch before": lambda txn: init(txn, _older(txn)),
        "AddPartitionsToTxn": lambda txn: add(txn, txn.metadata.producer, _MORE_PARTITIONS),
        "AddPartitionsToTxn again": lambda txn: add(txn, txn.metadata.producer, _PARTITIONS),
        "AddPartitionsToTxn with the epoch before": lambda txn: add(txn, _older(txn), _MORE_PARTITIONS),
        "EndTxn commit": lambda txn: end(txn, txn.metadata.producer, True),
        "EndTxn abort": lambda txn: end(txn, txn.metadata.producer, False),
        "EndTxn commit with the epoch before": lambda txn: end(txn, _older(txn), True),
        "EndTxn abort with the epoch before": lambda txn: end(txn, _older(txn), False),
        "EndTxn of another producer id": lambda txn: end(
            txn, ProducerIdAndEpoch(_PRODUCER.id - 1, _PRODUCER.epoch), True
        ),
        "all markers written": lambda txn: (
            decide_completion(txn, _NOW_MS) if txn.metadata.state in PREPARED_STATES else None
        ),
        "transaction.timeout.ms passed": lambda txn: decide_timeout(txn, _NOW_MS, transaction_version=version),
        "transactional.id.expiration.ms passed": lambda txn: decide_expiration(txn, _EXPIRATION_MS, _NOW_MS),
    }


def main() -> None:
    """Print all tables."""
    print(format_states())
    for version in VERSIONS:
        print()
        print(format_requests(version))


def format_states() -> str:
    """Return every state, its meaning, and the states that may follow it."""
    lines = ["States of a transactional id, with their byte in the log, and the states that may follow:", ""]
    for state in TransactionState:
        following = [other.label for other in TransactionState if other in TRANSITIONS[state]]
        lines.append(f"  {state.label} ({state.value}): {state.meaning}")
        lines.append(f"      → {', '.join(following) or '(nothing)'}")
    return "\n".join(lines)


def format_requests(version: int) -> str:
    """Return what each request, or the passing of time, does in each state that is ever durable."""
    lines = [
        f"What happens in each state in version {version} of the protocol (a state: it becomes pending and its record",
        f"is appended; while a transition is pending, {_WHILE_PENDING[version]}):",
    ]
    for state in TransactionState:
        if state not in PERSISTED_STATES:
            continue
        lines += ["", f"  {state.label}"]
        width = max(map(len, events(version)))
        lines += [f"      {name:<{width}}  {describe_result(state, name, version)}" for name in events(version)]
    return "\n".join(lines)


_WHILE_PENDING: Final = {
    1: "every request of the present producer gets CONCURRENT_TRANSACTIONS",
    2: "every request gets CONCURRENT_TRANSACTIONS",
}


def describe_result(state: TransactionState, event: str, version: int) -> str:
    """Return one cell: the result of an event for an id in a state."""
    txn = _sample(state, version)
    result = events(version)[event](txn)
    if isinstance(result, TransactionMetadata):
        return _describe_transition(txn.metadata, result)
    if isinstance(result, ErrorCode | Missing):
        return result.name
    assert result is None
    return "-"


def _describe_transition(before: TransactionMetadata, after: TransactionMetadata) -> str:
    notes = []
    if after.producer_id != before.producer_id:
        notes.append("new producer id")
    elif after.producer_epoch != before.producer_epoch:
        notes.append(f"epoch {after.producer_epoch - before.producer_epoch:+d}")
    if after.next_producer_id != NO_PRODUCER_ID:
        notes.append("new producer id set aside")
    return f"→ {after.state.label}" + (f" ({', '.join(notes)})" if notes else "")


def _sample(state: TransactionState, version: int) -> Transaction:
    """Return a transactional id in a state that this version of the protocol led to, long after its last update."""
    is_open = state is TransactionState.ONGOING or state in PREPARED_STATES
    metadata = TransactionMetadata(
        producer_id=_PRODUCER.id,
        producer_epoch=_PRODUCER.epoch,
        timeout_ms=_TIMEOUT_MS,
        state=state,
        partitions=_PARTITIONS if is_open else NO_PARTITIONS,
        start_ms=0,
        last_update_ms=0,
        client_transaction_version=version if version >= EPOCH_BUMP_VERSION else 0,
    )
    return Transaction("sample", metadata)


def _older(txn: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(txn.metadata.producer_id, txn.metadata.producer_epoch - 1)
