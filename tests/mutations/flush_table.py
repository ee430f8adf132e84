"""Mutations of what makes a flush count, and only a flush."""

from typing import Final

from tests.mutations.mutation import Mutation

_TEST: Final = "tests/simulation/test_flushed_leaderships.py"

FLUSH_MUTATIONS: Final = (
    Mutation(
        "B125", "broker/replication/leading_partition.py",
        "        if self._is_flush_due:\n            self._flush_soon()\n        self.advance_high_watermark()\n",
        "        self.advance_high_watermark()\n",
        f"{_TEST}::test_leadership_flushes_what_a_former_one_has_left",
    ),
    Mutation(
        "B125", "broker/replication/leading_partition.py",
        "        if self._is_flush_due:\n            self._flush_soon()\n        self.advance_high_watermark()\n",
        "        self.advance_high_watermark()\n",
        f"{_TEST}::test_coordinator_loads_although_its_log_had_an_unflushed_end",
    ),
    Mutation(
        "B126", "broker/replication/replica_fetcher.py",
        "                    self._rest(followed, ErrorCode.KAFKA_STORAGE_ERROR)\n", "                    pass\n",
        f"{_TEST}::test_follower_that_cannot_flush_is_not_counted",
    ),
    Mutation(
        "B127", "broker/storage/local_log.py",
        ", of_write=self.config.flush_interval_messages == 1)", ")",
        f"{_TEST}::test_leader_that_cannot_flush_for_want_of_descriptors_is_replaced",
    ),
)  # fmt: skip
