"""The latency of verification requests to transaction coordinators, and the count of their failures.

(Kafka: AddPartitionsToTxnManager's VerificationTimeMs and VerificationFailureRate.) Plain numbers, read by
metrics requests. Requests to a coordinator in this broker count too.
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
        """Verification requests that completed or timed out."""
        self.verification_failures = 0
        """Partitions of them that could not be verified or added, including those with a retriable error."""
        self.verification_time_ms_total = 0.0
        self.verification_time_ms_max = 0.0

    def record(self, time_ms: float, failures: int) -> None:
        self.verification_count += 1
        self.verification_failures += failures
        self.verification_time_ms_total += time_ms
        if time_ms > self.verification_time_ms_max:
            self.verification_time_ms_max = time_ms
