"""A thread for each producer of a workload, for clients that block."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.late_frames.workload import Outcome, Transaction

RunProducer = Callable[[str, Sequence[Transaction]], list[Outcome]]
"""Runs the transactions of one producer, given its transactional id."""


def run_in_threads(run: RunProducer, transactional_id_prefix: str, transactions: Sequence[Transaction]) -> list[str]:
    """Return the lines that ``PhasedClient.run_phases`` returns."""
    numbers = sorted({transaction.producer for transaction in transactions})
    with ThreadPoolExecutor(len(numbers)) as threads:
        running = []
        for number in numbers:
            mine = [transaction for transaction in transactions if transaction.producer == number]
            running.append(threads.submit(run, f"{transactional_id_prefix}-{number}", mine))
        outcomes = [producer.result(2 * TIMEOUT_SECONDS) for producer in running]
    return [f"{number}\t{outcome.value}" for number, mine in zip(numbers, outcomes, strict=True) for outcome in mine]
