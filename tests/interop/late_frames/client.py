"""A client of the experiment: whatever can run a workload."""

from collections.abc import Sequence
from typing import Final, Protocol

from tests.interop.late_frames.workload import Transaction

LINGER_MS: Final = 500
"""A phase is one batch, sent by its flush."""
REQUEST_TIMEOUT_MS: Final = 1_500
DELIVERY_TIMEOUT_MS: Final = LINGER_MS + REQUEST_TIMEOUT_MS
"""After which a client gives up a batch: as soon as it can, as the experiment waits for it."""
NEVER_GIVES_UP: Final = frozenset({"aiokafka"})
"""Clients that repeat a batch of a transaction for ever."""


class PhasedClient(Protocol):
    """Runs transactions whose phases are acknowledged one by one, each producer in its order, all of them at once."""

    name: str

    def lacking(self) -> str | None:
        """What is missing on this machine, with the command that installs it."""

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> Sequence[str]:
        """Lines ``producer TAB outcome [TAB error]``, in each producer's order. Ids are ``<prefix>-<producer>``."""
