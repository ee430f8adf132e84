"""``oncelog txn states``: the transaction coordinator's state machine, printed from the code that runs.

Nothing here repeats the rules. The first table is ``TRANSITIONS``; the second asks the coordinator's own decisions what
each request does to a transactional id in each state.
"""

from collections.abc import Callable
from typing import Final

from coordinator.transaction.state import (
    NO_PARTITIONS,
    PERSISTED_STATES,
    PREPARED_STATES,
    TRANSITIONS,
    Missing,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    TransactionState,
    decide_add_partitions,
    decide_completion,
    decide_end_txn,
    decide_expiration,
    decide_init_producer_id,
    decide_timeout,
)
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

_NOW_MS: Final = 1_000_000
_TIMEOUT_MS: Final = 60_000
_EXPIRATION_MS: Final = 100_000
_PRODUCER: Final = ProducerIdAndEpoch(4000, 7)
_NEW_PRODUCER_ID: Final = 4001
_PARTITIONS: Final = frozenset({TopicPartition("orders", 0)})
_MORE_PARTITIONS: Final = frozenset({TopicPartition("orders", 1)})

Event = Callable[[Transaction], object]

_EVENTS: Final[dict[str, Event]] = {
    "InitProducerId": lambda txn: decide_init_producer_id(txn, _TIMEOUT_MS, None, _NEW_PRODUCER_ID, _NOW_MS),
    "InitProducerId with the present epoch": lambda txn: decide_init_producer_id(
        txn, _TIMEOUT_MS, txn.metadata.producer, _NEW_PRODUCER_ID, _NOW_MS
    ),
    "InitProducerId with an older epoch": lambda txn: decide_init_producer_id(
        txn, _TIMEOUT_MS, _older(txn), _NEW_PRODUCER_ID, _NOW_MS
    ),
    "AddPartitionsToTxn": lambda txn: decide_add_partitions(txn, txn.metadata.producer, _MORE_PARTITIONS, _NOW_MS),
    "AddPartitionsToTxn again": lambda txn: decide_add_partitions(txn, txn.metadata.producer, _PARTITIONS, _NOW_MS),
    "AddPartitionsToTxn with an older epoch": lambda txn: decide_add_partitions(
        txn, _older(txn), _MORE_PARTITIONS, _NOW_MS
    ),
    "EndTxn commit": lambda txn: decide_end_txn(txn, txn.metadata.producer, True, _NOW_MS),
    "EndTxn abort": lambda txn: decide_end_txn(txn, txn.metadata.producer, False, _NOW_MS),
    "EndTxn with an older epoch": lambda txn: decide_end_txn(txn, _older(txn), True, _NOW_MS),
    "EndTxn of another producer id": lambda txn: decide_end_txn(
        txn, ProducerIdAndEpoch(_PRODUCER.id - 1, _PRODUCER.epoch), True, _NOW_MS
    ),
    "all markers written": lambda txn: (
        decide_completion(txn, _NOW_MS) if txn.metadata.state in PREPARED_STATES else None
    ),
    "transaction.timeout.ms passed": lambda txn: decide_timeout(txn, _NOW_MS),
    "transactional.id.expiration.ms passed": lambda txn: decide_expiration(txn, _EXPIRATION_MS, _NOW_MS),
}


def main() -> None:
    """Print both tables."""
    print(format_states())
    print()
    print(format_requests())


def format_states() -> str:
    """Every state, its meaning, and the states that may follow it."""
    lines = ["States of a transactional id, with their byte in the log, and the states that may follow:", ""]
    for state in TransactionState:
        following = [other.label for other in TransactionState if other in TRANSITIONS[state]]
        lines.append(f"  {state.label} ({state.value}): {state.meaning}")
        lines.append(f"      → {', '.join(following) or '(nothing)'}")
    return "\n".join(lines)


def format_requests() -> str:
    """What each request, or the passing of time, does in each state that is ever durable."""
    lines = [
        "What happens in each state (a state: it becomes pending and its record is appended; while a transition is",
        "pending, every request of the present producer gets CONCURRENT_TRANSACTIONS):",
    ]
    for state in TransactionState:
        if state not in PERSISTED_STATES:
            continue
        lines += ["", f"  {state.label}"]
        width = max(map(len, _EVENTS))
        lines += [f"      {name:<{width}}  {describe_result(state, name)}" for name in _EVENTS]
    return "\n".join(lines)


def describe_result(state: TransactionState, event: str) -> str:
    """One cell: the result of an event for an id in a state."""
    txn = _sample(state)
    result = _EVENTS[event](txn)
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
    return f"→ {after.state.label}" + (f" ({', '.join(notes)})" if notes else "")


def _sample(state: TransactionState) -> Transaction:
    """A transactional id in a state, long after its last update."""
    is_open = state is TransactionState.ONGOING or state in PREPARED_STATES
    metadata = TransactionMetadata(
        producer_id=_PRODUCER.id,
        producer_epoch=_PRODUCER.epoch,
        timeout_ms=_TIMEOUT_MS,
        state=state,
        partitions=_PARTITIONS if is_open else NO_PARTITIONS,
        start_ms=0,
        last_update_ms=0,
    )
    return Transaction("sample", metadata)


def _older(txn: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(txn.metadata.producer_id, txn.metadata.producer_epoch - 1)
