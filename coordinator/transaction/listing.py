"""The filter of ListTransactions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.coordinator.transaction.state import Transaction
from oncelog.coordinator.transaction.transaction_state import TransactionState

STATES_BY_LABEL: Final = {state.label: state for state in TransactionState}
NO_DURATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """The criteria of one request; an empty criterion accepts every transaction."""

    states: frozenset[TransactionState] | None = None
    """None: of any state. Empty: of none, because the request names only states that do not exist."""
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = NO_DURATION
    id_matches: Callable[[str], bool] | None = None

    def select(self, transactions: Iterable[Transaction], now_ms: int) -> list[Transaction]:
        """Return the transactions that meet all criteria."""
        return [txn for txn in transactions if self._accepts(txn, now_ms)]

    def _accepts(self, txn: Transaction, now_ms: int) -> bool:
        metadata = txn.metadata
        if not metadata.exists_in_log:
            return False
        if self.states is not None and metadata.state not in self.states:
            return False
        if self.producer_ids and metadata.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms >= 0 and now_ms - metadata.start_ms <= self.longer_than_ms:
            return False
        return self.id_matches is None or self.id_matches(txn.transactional_id)


def parse_states(labels: Iterable[str]) -> tuple[frozenset[TransactionState] | None, list[str]]:
    """Return the states that a request names (None if it names none), and the names that are no states."""
    wanted = list(labels)
    known = frozenset(STATES_BY_LABEL[label] for label in wanted if label in STATES_BY_LABEL)
    unknown = [label for label in wanted if label not in STATES_BY_LABEL]
    return known if wanted else None, unknown
