"""How long transaction coordinators take to answer partition leaders, and how often the answer is no.

(Kafka: AddPartitionsToTxnManager's VerificationTimeMs and VerificationFailureRate.) Plain numbers, read when somebody
looks. Questions to a coordinator in this broker count too.
"""


class VerificationMetrics:
    """Since the broker started."""

    __slots__ = (
        "verification_count",
        "verification_failures",
        "verification_time_ms_max",
        "verification_time_ms_total",
    )

    def __init__(self) -> None:
        self.verification_count = 0
        """Questions that were answered, or given up."""
        self.verification_failures = 0
        """Partitions of them that could not be verified or added, for whatever reason, also for a passing one."""
        self.verification_time_ms_total = 0.0
        self.verification_time_ms_max = 0.0

    def record(self, time_ms: float, failures: int) -> None:
        self.verification_count += 1
        self.verification_failures += failures
        self.verification_time_ms_total += time_ms
        if time_ms > self.verification_time_ms_max:
            self.verification_time_ms_max = time_ms
