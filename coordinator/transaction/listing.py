"""The filter of ListTransactions."""

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from oncelog.coordinator.regular_expression import RegularExpression
from oncelog.coordinator.transaction.state import Transaction
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.records.record_walk import WorkBudget

STATES_BY_LABEL: Final = {state.label: state for state in TransactionState}
NO_DURATION: Final = -1
_UNITS_PER_TRANSACTION: Final = 1


class TransactionFilter(NamedTuple):
    """The criteria of one request; an empty criterion accepts every transaction."""

    states: frozenset[TransactionState] | None = None
    """None: of any state. Empty: of none, because the request names only states that do not exist."""
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = NO_DURATION
    id_pattern: RegularExpression | None = None

    def select(
        self, transactions: Iterable[Transaction], now_ms: int, budget: WorkBudget
    ) -> Generator[None, object, list[Transaction]]:
        """Return the transactions that meet all criteria; yields when the budget is used up.

        One slice exceeds its budget by at most one match of the pattern.
        """
        selected = []
        for txn in transactions:
            budget.left -= _UNITS_PER_TRANSACTION
            accepted = self._accepts_state(txn, now_ms)
            if accepted and self.id_pattern is not None:
                budget.left -= self.id_pattern.match_units(txn.transactional_id)
                if budget.left <= 0:
                    yield None
                accepted = self.id_pattern.fullmatch(txn.transactional_id)
            elif budget.left <= 0:
                yield None
            if accepted:
                selected.append(txn)
        return selected

    def _accepts_state(self, txn: Transaction, now_ms: int) -> bool:
        metadata = txn.metadata
        if not metadata.exists_in_log:
            return False
        if self.states is not None and metadata.state not in self.states:
            return False
        if self.producer_ids and metadata.producer_id not in self.producer_ids:
            return False
        return self.longer_than_ms < 0 or now_ms - metadata.start_ms > self.longer_than_ms


def parse_states(labels: Iterable[str]) -> tuple[frozenset[TransactionState] | None, list[str]]:
    """Return the states that a request names (None if it names none), and the names that are no states."""
    wanted = list(labels)
    known = frozenset(STATES_BY_LABEL[label] for label in wanted if label in STATES_BY_LABEL)
    unknown = [label for label in wanted if label not in STATES_BY_LABEL]
    return known if wanted else None, unknown
