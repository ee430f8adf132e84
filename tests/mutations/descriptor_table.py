"""The safeguards of logs against a lack of file descriptors, and what shows that each is missing."""

from typing import Final

from tests.mutations.mutation import Mutation

_CUT: Final = "broker/storage/log_cut.py"
_LOG: Final = "broker/storage/partition_log.py"
_SEGMENT: Final = "broker/storage/log_segment.py"
_CLEANER: Final = "broker/storage/cleaner.py"
_TEST: Final = "tests/unit/broker/storage/test_few_descriptors.py"
_TEST_CUT: Final = f"{_TEST}::test_truncation_without_descriptors_is_not_begun_or_is_completed"
_TEST_FULL: Final = f"{_TEST}::test_full_truncation_without_descriptors_is_not_begun_or_is_completed"
_TEST_CLEANING: Final = f"{_TEST}::test_cleaning_without_descriptors_is_given_up_or_is_complete"

DESCRIPTOR_MUTATIONS: Final = (
    Mutation(
        "B124", _LOG,
        "            self.snapshots.apply(cut.snapshot, self.producer_state, self.log_start_offset)\n",
        "            self.snapshots.restore(self.producer_state, self.log_start_offset, offset)\n",
        _TEST_CUT,
    ),
    Mutation("B124", _CUT, "                _load(segment)\n", "                pass\n", _TEST_CUT),
    Mutation("B124", _CUT, "    _load(last)\n", "", _TEST_CUT),
    Mutation(
        "B124", _SEGMENT,
        "            if error.errno not in OUT_OF_DESCRIPTORS:\n                raise\n",
        "            raise error\n",
        _TEST_CUT,
    ),
    Mutation(
        "B124", _LOG,
        "        segment.drop_name_suffix()\n        self.segments.add(segment)\n",
        "        self.segments.add(self.create_segment(offset))\n",
        _TEST_FULL,
    ),
    Mutation(
        "B124", _LOG,
        "            self._disk.remove(segment.path(LOG_SUFFIX))\n            raise\n",
        "            raise\n",
        f"{_TEST}::test_refused_full_truncation_leaves_no_file",
    ),
    Mutation(
        "B124", "broker/storage/flush_state.py",
        "        self._truncations += 1\n        self._unsynced_names = True\n",
        "        self._truncations += 1\n",
        f"{_TEST}::test_directory_that_could_not_be_synced_is_synced_by_the_next_flush",
    ),
    Mutation(
        "B124", _SEGMENT,
        "        self.indexes.load()  # No append may have to open a file once it is written.\n",
        "",
        f"{_TEST}::test_append_without_descriptors_is_refused_or_is_complete",
    ),
    Mutation(
        "B124", _CLEANER,
        "            if error.errno in OUT_OF_DESCRIPTORS:\n                raise\n",
        "",
        _TEST_CLEANING,
    ),
    Mutation(
        "B124", _CLEANER,
        "                        disk.rename(target, source)\n",
        "                        pass\n",
        _TEST_CLEANING,
    ),
)  # fmt: skip
