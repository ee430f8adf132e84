"""The clients of the experiment: whoever can run a workload."""

from collections.abc import Sequence
from typing import Protocol

from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.drivers.program import JavaClient, run
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


class PhasedJavaClient(JavaClient):
    """The Java client; which version of the protocol it speaks is its age's and the broker's matter."""

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> Sequence[str]:
        lines = [transaction.line() for transaction in transactions]
        command = self.command("PhasedProducer", address, topic, transactional_id_prefix)
        return run(command, lines).splitlines()


VERSION_2: Sequence[PhasedClient] = (PhasedJavaClient("java-client-4"), OncelogClient("2"))
"""Clients that speak version 2 of the transaction protocol where the broker has it."""
VERSION_1: Sequence[PhasedClient] = (PhasedJavaClient("java-client-3"), OncelogClient("1"))
"""Clients that always speak version 1."""
