"""A client of the experiment: whatever can run a workload."""

from collections.abc import Sequence
from typing import Protocol

from tests.interop.late_frames.workload import Transaction


class PhasedClient(Protocol):
    """Runs transactions whose phases are acknowledged one by one, each producer in its order, all of them at once."""

    name: str

    def lacking(self) -> str | None:
        """What is missing on this machine, with the command that installs it."""

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> Sequence[str]:
        """Lines ``producer TAB outcome [TAB error]``, in each producer's order. Ids are ``<prefix>-<producer>``."""
