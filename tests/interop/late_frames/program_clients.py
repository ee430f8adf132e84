"""Clients of the experiment that live in another process: the Java client and kafkajs."""

from collections.abc import Sequence

from tests.interop.drivers.program import JavaClient, KafkaJs, run
from tests.interop.late_frames.workload import Transaction


class PhasedJavaClient(JavaClient):
    """The Java client; which version of the protocol it speaks is its age's and the broker's matter."""

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> Sequence[str]:
        lines = [transaction.line() for transaction in transactions]
        command = self.command("PhasedProducer", address, topic, transactional_id_prefix)
        return run(command, lines).splitlines()


class PhasedKafkaJs(KafkaJs):
    """kafkajs, which speaks version 1."""

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> Sequence[str]:
        lines = [transaction.line() for transaction in transactions]
        return self.run_program("phased_producer.js", address, topic, transactional_id_prefix, lines=lines)
