"""The transaction coordinator against tables that were derived from Apache Kafka's sources, cell by cell.

The tables are in ``tables``, and on the page ``docs/internals/transaction-tables.md``. Every cell is decided by the
pure functions; every cell that can be loaded from a log also by a whole coordinator that did so.
"""

from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.transaction.state import (
    NO_PRODUCER,
    NO_PRODUCER_ID,
    Missing,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from oncelog.coordinator.transaction.transaction_state import TRANSITIONS, TransactionState
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.tables import decisions
from tests.unit.coordinator.transaction.tables.add_partitions import ADD_PARTITIONS, VERIFY_PARTITIONS
from tests.unit.coordinator.transaction.tables.decision_table import Cell, DecisionTable, Rule
from tests.unit.coordinator.transaction.tables.decisions import client_version, requested
from tests.unit.coordinator.transaction.tables.end_txn import END_TXN
from tests.unit.coordinator.transaction.tables.init_producer_id import INIT_PRODUCER_ID, expected_of
from tests.unit.coordinator.transaction.tables.live_cells import LiveCells, known_producer, normalised
from tests.unit.coordinator.transaction.tables.own_transitions import TIMEOUT
from tests.unit.coordinator.transaction.tables.page import TABLES, page
from tests.unit.coordinator.transaction.tables.relations import (
    NEW,
    REQUESTED_TIMEOUT_MS,
    metadata_of,
    producer_of,
    state_of,
)
from tests.unit.coordinator.transaction.tables.transitions import EFFECTS, ERRORS, NOTHING, next_metadata
from tests.unit.coordinator.transaction.world import Call, World

PAGE = Path(__file__).resolve().parents[4] / "docs" / "internals" / "transaction-tables.md"
CELLS = {
    "EndTxn": 1704,
    "InitProducerId": 1152,
    "AddPartitionsToTxn": 972,
    "AddPartitionsToTxn, verify only": 486,
    "The time-out of a transaction": 192,
    "The last marker is written": 32,
    "The expiry of a transactional id": 24,
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_cells_and_rules_match_one_to_one(table: DecisionTable) -> None:
    assert len(table.decided()) == CELLS[table.name]
    for rule in table.rules:
        assert any(rule.covers(cell) for cell in table.cells), rule
        assert rule.outcome in {*EFFECTS, *ERRORS, NOTHING}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_transition_in_histories_is_allowed(table: DecisionTable) -> None:
    transitions = [(cell, rule) for cell, rule in table.decided() if rule.outcome in EFFECTS]
    for cell, rule in transitions:
        assert state_of(EFFECTS[rule.outcome]["state"]) in TRANSITIONS[state_of(cell["state"])], (cell, rule)
        assert cell.get("pending", "no") == "no", "nothing is decided while a transition is pending"


def test_transition_appears_in_a_table() -> None:
    named = {rule.outcome for table in TABLES for rule in table.rules}
    assert set(EFFECTS) <= named


def test_page_shows_the_tables() -> None:
    """``make docs-pages`` writes it."""
    assert PAGE.read_text() == page()


def live(table: DecisionTable, **fixed: str) -> list[tuple[Cell, Rule]]:
    """The cells of what a coordinator knows after it loaded: only completions are pending."""

    def is_loaded(cell: Cell) -> bool:
        wanted = {"pending": "yes" if cell["state"].startswith("Prepare") else "no", "last": "unknown", **fixed}
        return all(cell[name] == value for name, value in wanted.items() if name in cell)

    return [(cell, rule) for cell, rule in table.decided() if is_loaded(cell)]


class Mismatches(list[str]):
    """What differs from the tables. Used as a context, it fails with all of it at the end."""

    def __enter__(self) -> "Mismatches":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            assert not self, f"{len(self)} cells: " + "\n".join(["", *self[:20]])

    def compare(self, cell: Cell, what: object, found: object, expected: object) -> None:
        if found != expected:
            where = " ".join(f"{name}={value}" for name, value in cell.items())
            if isinstance(found, TransactionMetadata) and isinstance(expected, TransactionMetadata):
                self.append(
                    f"{where}: {what}\n    {different(found, expected)} instead of {different(expected, found)}"
                )
            else:
                self.append(f"{where}: {what}\n    {found} instead of {expected}")


def different(metadata: TransactionMetadata, other: TransactionMetadata) -> dict[str, object]:
    """The fields that another has otherwise."""
    theirs = other._asdict()
    return {name: value for name, value in metadata._asdict().items() if value != theirs[name]}


def expected_record(cell: Cell, rule: Rule) -> TransactionMetadata | None:
    """What the rule says that the log has after the request."""
    if rule.outcome not in EFFECTS:
        return None
    return normalised(next_metadata(metadata_of(cell), rule.outcome, cell))


def expected_error(rule: Rule) -> ErrorCode:
    return ERRORS.get(rule.outcome, ErrorCode.NONE)


def end(world: World, name: str, cell: Cell) -> Call[Any]:
    producer, commit, version = producer_of(cell), cell["end"] == "commit", client_version(cell)
    return world.begin(lambda: world.coordinator.end_txn(name, producer, commit=commit, client_version=version))


def add(world: World, name: str, cell: Cell) -> Call[Any]:
    producer, partitions, version = producer_of(cell), requested(cell), client_version(cell)
    return world.begin(lambda: world.coordinator.add_partitions(name, producer, partitions, client_version=version))


def init(world: World, name: str, cell: Cell) -> Call[Any]:
    return world.init(name, expected=expected_of(cell), timeout_ms=REQUESTED_TIMEOUT_MS)


DECIDE = {
    "EndTxn": decisions.end_txn,
    "InitProducerId": decisions.init_producer_id,
    "AddPartitionsToTxn": decisions.add_partitions,
    "AddPartitionsToTxn, verify only": decisions.verify,
    "The time-out of a transaction": decisions.timeout,
    "The last marker is written": decisions.completion,
    "The expiry of a transactional id": decisions.expiration,
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_cell_is_decided_as_the_table_says(table: DecisionTable) -> None:
    """B01, B05, B18, B20, B23, B28, B29: the rules that name them, and all others."""
    with Mismatches() as mismatches:
        for cell, rule in table.decided():
            decision = DECIDE[table.name](cell)
            if rule.outcome in EFFECTS:
                expected = next_metadata(metadata_of(cell), rule.outcome, cell)
                if isinstance(decision, TransactionMetadata):
                    decision = decision._replace(cause=None)
                mismatches.compare(cell, rule.outcome, decision, expected)
            else:
                mismatches.compare(cell, rule.outcome, decision, ERRORS.get(rule.outcome))


@pytest.mark.parametrize("table", [END_TXN, INIT_PRODUCER_ID, TIMEOUT], ids=lambda table: table.name)
def test_new_producer_id_is_reserved_only_where_it_is_needed(table: DecisionTable) -> None:
    """B23: and without one nothing is decided."""
    with Mismatches() as mismatches:
        for cell, rule in table.decided():
            effect = EFFECTS.get(rule.outcome, {})
            needs_one = "new" in (effect.get("producer id"), effect.get("next id"))
            missing = DECIDE[table.name](cell, NO_PRODUCER_ID) is Missing.PRODUCER_ID
            mismatches.compare(cell, f"{rule.outcome} without an id", missing, needs_one)


def test_end_txn_of_a_loaded_coordinator() -> None:
    with Mismatches() as mismatches, LiveCells(live(END_TXN)) as cells:
        responses = cells.ask(end)
        written = cells.written()
        for (name, (cell, rule)), response in zip(cells.named(), responses, strict=True):
            prepared = expected_record(cell, rule)
            mismatches.compare(cell, rule.outcome, written.get(name), prepared)
            mismatches.compare(cell, rule.outcome, response.error, expected_error(rule))
            if response.error:
                mismatches.compare(cell, rule.outcome, response.producer, NO_PRODUCER)
            elif client_version(cell) == 2:
                producer = metadata_of(cell).producer if prepared is None else next_producer(prepared)
                mismatches.compare(cell, rule.outcome, known_producer(response.producer), producer)


def next_producer(prepared: TransactionMetadata) -> ProducerIdAndEpoch:
    """Who the producer is when a transaction of version 2 that is prepared is complete."""
    if prepared.next_producer_id == NO_PRODUCER_ID:
        return prepared.producer
    return ProducerIdAndEpoch(prepared.next_producer_id, 0)


@pytest.mark.parametrize("level", [1, 2])
def test_init_producer_id_of_a_loaded_coordinator(level: int) -> None:
    with Mismatches() as mismatches, LiveCells(live(INIT_PRODUCER_ID, level=str(level)), level=level) as cells:
        responses = cells.ask(init)
        written = cells.written()
        for (name, (cell, rule)), response in zip(cells.named(), responses, strict=True):
            record = expected_record(cell, rule)
            mismatches.compare(cell, rule.outcome, written.get(name), record)
            if record is not None and record.state is TransactionState.EMPTY:
                expected = (ErrorCode.NONE, record.producer)
            else:
                expected = (ERRORS["BUSY"] if record is not None else expected_error(rule), NO_PRODUCER)
            mismatches.compare(cell, rule.outcome, (response.error, known_producer(response.producer)), expected)


def test_add_partitions_of_a_loaded_coordinator() -> None:
    with Mismatches() as mismatches, LiveCells(live(ADD_PARTITIONS)) as cells:
        responses = cells.ask(add)
        written = cells.written()
        for (name, (cell, rule)), response in zip(cells.named(), responses, strict=True):
            mismatches.compare(cell, rule.outcome, written.get(name), expected_record(cell, rule))
            mismatches.compare(cell, rule.outcome, response, expected_error(rule))


def test_verification_by_a_loaded_coordinator() -> None:
    with Mismatches() as mismatches, LiveCells(live(VERIFY_PARTITIONS)) as cells:
        for name, (cell, rule) in cells.named():
            response = cells.world.coordinator.verify_partitions(name, producer_of(cell), requested(cell))
            mismatches.compare(cell, rule.outcome, response, dict.fromkeys(requested(cell), expected_error(rule)))
        assert not cells.written()


def test_uninitialised_id_has_no_producer() -> None:
    """``endTransaction``, ``handleAddPartitionsToTransaction`` and the verification, with ``None``."""
    with LiveCells([]) as cells:
        for protocol in ("1", "2"):
            cell = {"protocol": protocol, "end": "commit", "partitions": "new", "id": "present"}
            cell |= {"epoch": "7", "sent": "same"}
            assert end(cells.world, "nobody", cell).wait() == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_PRODUCER)
            assert add(cells.world, "nobody", cell).wait() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        verified = cells.world.coordinator.verify_partitions("nobody", producer_of(cell), requested(cell))
        assert verified == {NEW: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert not cells.written()
