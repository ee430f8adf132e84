"""Decide from the evidence whether exactly-once was kept. Pure.

What is promised, and what a violation of it is called:

- ``lost``: a record of a committed transaction is not there; or an input below what its group has committed was not
  transformed.
- ``duplicated``: a record is there twice; or an input was transformed twice.
- ``torn``: of a transaction's records some are there and some are not. Of one with a known outcome that is told as lost
  or aborted; so this is about unknown ones.
- ``aborted``: a record of an aborted transaction is there.
- ``foreign``: a record that nobody began to write, or an output of an input that is not there, or not where it says.
- ``order``: the records of a role in one partition are not in the order in which they were written.
- ``offsets``: an input at or above what its group has committed was transformed; or one was not transformed that it
  should have been, as the load was over.
- ``open``: a client never told the end of a transaction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.faults.history import Evidence, Input, Output, Place, Transaction, TransactionKey

KINDS: Final = ("lost", "duplicated", "torn", "aborted", "foreign", "order", "offsets", "open")


class Violation(NamedTuple):
    """A promise that was not kept, and by what."""

    kind: str
    text: str


def check(evidence: Evidence) -> list[Violation]:
    """All that is wrong."""
    return [
        *_check_ends(evidence.transactions),
        *_check_writes(evidence.transactions, evidence.inputs, "writer"),
        *_check_order(evidence.inputs),
        *(each for client in evidence.outputs for each in _check_worker(evidence, client)),
    ]


def _check_ends(transactions: dict[TransactionKey, Transaction]) -> Iterator[Violation]:
    for key, transaction in transactions.items():
        if transaction.outcome == "open":
            yield Violation("open", f"{key}: no end was told")


def _check_writes(
    transactions: dict[TransactionKey, Transaction],
    found: Sequence[Input] | Sequence[Output],
    role: str,
    client: str = "",
) -> Iterator[Violation]:
    """Every transaction of a role (of one client, if it is named) is there once and whole, or not at all."""
    seen: dict[TransactionKey, Counter[int]] = defaultdict(Counter)
    for record in found:
        seen[record.key][record.index] += 1
    for key, indexes in seen.items():
        if key not in transactions or max(indexes) >= transactions[key].count:
            yield Violation("foreign", f"{key}: nobody began to write {sorted(indexes)}")
    for key, transaction in transactions.items():
        if key.role == role and client in ("", key.client):
            yield from _check_transaction(key, transaction, seen.get(key, Counter()))


def _check_transaction(key: TransactionKey, transaction: Transaction, seen: Counter[int]) -> Iterator[Violation]:
    for index, times in seen.items():
        if times > 1:
            yield Violation("duplicated", f"{key}: record {index} is there {times} times")
    missing = [index for index in range(transaction.count) if index not in seen]
    if transaction.outcome == "aborted" and seen:
        yield Violation("aborted", f"{key}: aborted ({transaction.detail}), and records {sorted(seen)} are there")
    elif transaction.outcome == "committed" and missing:
        yield Violation("lost", f"{key}: committed, and of {transaction.count} records {missing} are missing")
    elif transaction.outcome in ("unknown", "open") and seen and missing:
        yield Violation("torn", f"{key}: outcome unknown, records {sorted(seen)} are there and {missing} are not")


def _check_order(found: Iterable[Input] | Iterable[Output]) -> Iterator[Violation]:
    """In each partition the records of a role come in the order of (transaction, index)."""
    last: dict[tuple[str, str, int], tuple[int, int]] = {}
    for record in found:
        where = record.key.client, record.key.role, record.at.partition
        this = record.number, record.index
        # The same twice is a duplicate, and told as that.
        if this < last.get(where, this):
            yield Violation(
                "order", f"{record.key}: record {record.index} at {_name(record.at)} is after {last[where]}"
            )
        last[where] = this


def _check_worker(evidence: Evidence, client: str) -> Iterator[Violation]:
    outputs = evidence.outputs[client]
    yield from _check_writes(evidence.transactions, outputs, "worker", client)
    yield from _check_order(outputs)
    yield from _check_transformations(client, evidence.inputs, outputs, evidence.committed.get(client, {}))


def _check_transformations(
    client: str, inputs: Sequence[Input], outputs: Sequence[Output], committed: dict[int, int]
) -> Iterator[Violation]:
    """Each input has one output if its group is beyond it, and none otherwise. In the end it is beyond all of them."""
    sources = {record.at: record.text for record in inputs}
    transformed: Counter[Place] = Counter(output.source_at for output in outputs)
    for output in outputs:
        if sources.get(output.source_at) != output.source:
            yield Violation("foreign", f"{output.key}: {_name(output.source_at)} is not {output.source!r} for readers")
    for place, times in transformed.items():
        if times > 1:
            yield Violation("duplicated", f"worker {client}: the input {_name(place)} was transformed {times} times")
        if place.offset >= committed.get(place.partition, 0):
            yield Violation("offsets", f"worker {client}: {_name(place)} was transformed, but is not committed")
    for place in sources:
        is_committed = place.offset < committed.get(place.partition, 0)
        if place not in transformed and is_committed:
            yield Violation("lost", f"worker {client}: {_name(place)} is committed, but has no output")
        if not is_committed:
            yield Violation("offsets", f"worker {client}: did not get to {_name(place)}")


def _name(place: Place) -> str:
    return f"{place.partition}:{place.offset}"
