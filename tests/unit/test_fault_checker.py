"""The checker of ``make faults`` notices what it is there for: each broken history is a good one, changed once."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.checker import Violation, check
from tests.faults.history import (
    Evidence,
    Input,
    Outcome,
    Output,
    Place,
    Transaction,
    TransactionKey,
    parse_input,
    parse_output,
)
from tests.faults.names import PARTITIONS

CLIENTS = ("first", "second")
RECORDS = 6


def good_history(rng: random.Random, transactions: int = 12) -> Evidence:
    """Writers of two clients, some of whose transactions are aborted or unknown; each worker transforms everything."""
    found = Evidence(transactions={}, inputs=[], outputs={client: [] for client in CLIENTS}, committed={})
    ends = [0] * PARTITIONS
    for number in range(1, transactions + 1):
        for client in CLIENTS:
            write(found, rng, ends, client, number)
    for client in CLIENTS:
        transform(found, rng, client)
        found.committed[client] = Place.following(record.at for record in found.inputs)
    return found


def write(found: Evidence, rng: random.Random, ends: list[int], client: str, number: int) -> None:
    outcomes: tuple[Outcome, ...] = ("committed", "committed", "aborted", "unknown")
    transaction = Transaction(RECORDS, rng.choice(outcomes))
    found.transactions[TransactionKey(client, "writer", number)] = transaction
    is_there = transaction.outcome == "committed" or (transaction.outcome == "unknown" and rng.random() < 0.5)
    for index in range(RECORDS):
        partition = (number + index // 2) % PARTITIONS
        if is_there:
            found.inputs.append(Input(client, number, index, RECORDS, Place(partition, ends[partition])))
        ends[partition] += 1
    for partition in range(PARTITIONS):
        ends[partition] += 1  # A marker.


def transform(found: Evidence, rng: random.Random, client: str) -> None:
    number, ends, todo = 0, [0] * PARTITIONS, list(found.inputs)
    while todo:
        number += 1
        batch = todo[: rng.randint(1, 7)]
        outcome: Outcome = rng.choice(("committed", "unknown", "aborted"))
        found.transactions[TransactionKey(client, "worker", number)] = Transaction(len(batch), outcome)
        if outcome == "aborted":
            continue
        for index, record in enumerate(batch):
            partition = record.at.partition
            at = Place(partition, ends[partition])
            found.outputs[client].append(Output(client, number, index, len(batch), record.text, record.at, at))
            ends[partition] += 1
        del todo[: len(batch)]


def kinds(found: list[Violation]) -> set[str]:
    return {violation.kind for violation in found}


def with_outcome(evidence: Evidence, role: str, outcome: Outcome) -> TransactionKey:
    """A transaction whose records are there, and which now has this outcome."""
    client = CLIENTS[0]
    records: list[Input] | list[Output] = evidence.inputs if role == "writer" else evidence.outputs[client]
    key = next(record.key for record in records if record.key.client == client and record.count > 1)
    evidence.transactions[key].outcome = outcome
    return key


def lose_input(evidence: Evidence) -> None:
    key = with_outcome(evidence, "writer", "committed")
    gone = next(record for record in evidence.inputs if record.key == key)
    evidence.inputs.remove(gone)
    for outputs in evidence.outputs.values():
        outputs[:] = [output for output in outputs if output.source_at != gone.at]


def lose_output(evidence: Evidence) -> None:
    key = with_outcome(evidence, "worker", "committed")
    outputs = evidence.outputs[key.client]
    outputs.remove(next(output for output in outputs if output.key == key))


def lose_all_of_a_transaction(evidence: Evidence) -> None:
    key = with_outcome(evidence, "writer", "committed")
    evidence.inputs[:] = [record for record in evidence.inputs if record.key != key]


def repeat_input(evidence: Evidence) -> None:
    evidence.inputs.append(replace(evidence.inputs[0], at=Place(0, 10_000)))


def repeat_output(evidence: Evidence) -> None:
    outputs = evidence.outputs[CLIENTS[0]]
    outputs.append(replace(outputs[0], at=Place(0, 10_000)))


def transform_twice(evidence: Evidence) -> None:
    """By another transaction, whole and committed."""
    outputs = evidence.outputs[CLIENTS[0]]
    key = TransactionKey(CLIENTS[0], "worker", 999)
    evidence.transactions[key] = Transaction(1, "committed")
    outputs.append(replace(outputs[0], number=999, index=0, count=1, at=Place(0, 10_000)))


def tear_input(evidence: Evidence) -> None:
    key = with_outcome(evidence, "writer", "unknown")
    evidence.inputs.remove(next(record for record in evidence.inputs if record.key == key))


def tear_output(evidence: Evidence) -> None:
    key = with_outcome(evidence, "worker", "unknown")
    outputs = evidence.outputs[key.client]
    outputs.remove(next(output for output in outputs if output.key == key))


def show_aborted_input(evidence: Evidence) -> None:
    with_outcome(evidence, "writer", "aborted")


def show_aborted_output(evidence: Evidence) -> None:
    with_outcome(evidence, "worker", "aborted")


def invent_input(evidence: Evidence) -> None:
    evidence.inputs.append(Input("nobody", 1, 0, RECORDS, Place(0, 10_000)))


def invent_record_of_a_transaction(evidence: Evidence) -> None:
    evidence.inputs.append(replace(evidence.inputs[0], index=RECORDS, at=Place(0, 10_000)))


def invent_source(evidence: Evidence) -> None:
    outputs = evidence.outputs[CLIENTS[0]]
    outputs[0] = replace(outputs[0], source="nobody:1:0:6")


def move_source(evidence: Evidence) -> None:
    """As if the input had been read at an offset where another lies now."""
    outputs = evidence.outputs[CLIENTS[0]]
    outputs[0] = replace(outputs[0], source_at=outputs[1].source_at)


def swap_inputs(evidence: Evidence) -> None:
    """Two records of a writer in one partition come in the wrong order; their sources stay as they are."""
    first = next(i for i, record in enumerate(evidence.inputs) if record.index == 0)
    a, b = evidence.inputs[first], evidence.inputs[first + 1]
    assert (a.key, a.at.partition, b.index) == (b.key, b.at.partition, 1)
    evidence.inputs[first], evidence.inputs[first + 1] = replace(b, at=a.at), replace(a, at=b.at)


def commit_too_little(evidence: Evidence) -> None:
    """Outputs are there, and the offset that was committed with them is not."""
    partition, offset = next(iter(evidence.committed[CLIENTS[1]].items()))
    evidence.committed[CLIENTS[1]][partition] = offset - 1


def commit_too_much(evidence: Evidence) -> None:
    """Offsets are committed, and the outputs that belong to them are not there, all of a transaction."""
    key = with_outcome(evidence, "worker", "unknown")
    outputs = evidence.outputs[key.client]
    outputs[:] = [output for output in outputs if output.key != key]


def forget_group(evidence: Evidence) -> None:
    evidence.committed.pop(CLIENTS[0])


def never_end(evidence: Evidence) -> None:
    with_outcome(evidence, "writer", "open")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lose_input, "lost"),
        (lose_all_of_a_transaction, "lost"),
        (lose_output, "lost"),
        (commit_too_much, "lost"),
        (repeat_input, "duplicated"),
        (repeat_output, "duplicated"),
        (transform_twice, "duplicated"),
        (tear_input, "torn"),
        (tear_output, "torn"),
        (show_aborted_input, "aborted"),
        (show_aborted_output, "aborted"),
        (invent_input, "foreign"),
        (invent_record_of_a_transaction, "foreign"),
        (invent_source, "foreign"),
        (move_source, "foreign"),
        (swap_inputs, "order"),
        (commit_too_little, "offsets"),
        (forget_group, "offsets"),
        (never_end, "open"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_broken_promises_are_each_reported(change: Callable[[Evidence], None], kind: str, seed: int) -> None:
    evidence = good_history(random.Random(seed))
    assert check(evidence) == []
    change(evidence)
    assert kind in kinds(check(evidence))


@pytest.mark.parametrize("seed", range(60))
def test_good_history_has_no_finding(seed: int) -> None:
    assert check(good_history(random.Random(seed), transactions=20)) == []


def test_texts_of_records_are_parsed_as_they_were_written() -> None:
    at = Place(2, 40)
    assert parse_input("java:17:3:6", at) == Input("java", 17, 3, 6, at)
    assert parse_input("java:17:3:6", at).text == "java:17:3:6"
    assert parse_output("oncelog:5:0:2|java:17:3:6|4:39", at) == Output(
        "oncelog", 5, 0, 2, "java:17:3:6", Place(4, 39), at
    )
    with pytest.raises(ValueError, match="unpack"):
        parse_input("something else", at)
