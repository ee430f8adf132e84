"""The safeguards that notice logs which have lost their end, and what shows that each is missing."""

from typing import Final

from tests.mutations.mutation import Mutation

_CHECKPOINTS: Final = "broker/storage/log_checkpoints.py"
_INTACT: Final = "broker/storage/intact_logs.py"
_LOG: Final = "broker/storage/partition_log.py"
_MANAGER: Final = "broker/storage/log_manager.py"
_RECOVERY: Final = "broker/storage/recovery.py"
_TEST: Final = "tests/unit/broker/storage/test_lost_log_ends.py"
_TEST_KILL: Final = f"{_TEST}::test_log_that_lost_its_end_between_kill_and_start_is_damaged_once"
_TEST_STEPS: Final = f"{_TEST}::test_log_that_is_shortened_on_purpose_is_not_damaged_by_a_kill_at_any_step"
_TEST_KILLED_START: Final = f"{_TEST}::test_start_that_is_killed_after_a_clean_shutdown_hides_no_damage"
_TEST_KEPT: Final = f"{_TEST}::test_recovery_point_after_the_registration_is_no_evidence"
_TEST_STORY: Final = "tests/simulation/test_lost_log_ends.py::test_log_that_lost_its_end_waits_for_one_that_has_it"

LOST_END_MUTATIONS: Final = (
    Mutation("B112", _RECOVERY, "            self.on_damage(lost)\n", "", _TEST_STORY),
    Mutation(
        "B112", _RECOVERY,
        "            self.disk.sync_dir(self.directory)\n        self._segments.append(segment)\n",
        "            pass\n        self._segments.append(segment)\n",
        f"{_TEST}::test_lost_log_that_is_copied_anew_does_not_begin_later_after_a_loss_of_power",
    ),
    Mutation(
        "B112", _RECOVERY,
        "max(self.high_watermark, self.recovery_point) if self.is_end_noted else self.high_watermark\n",
        "self.high_watermark\n",
        f"{_TEST}::test_log_that_lost_its_end_after_a_clean_shutdown_is_damaged",
    ),
    Mutation(
        "B112", _MANAGER,
        "            self.directory.intact.note_damage(f\"{len(missing)} {are_missing} missing\")\n",
        "            pass\n",
        _TEST_STORY,
    ),
    Mutation("B112", _INTACT, "        self.ends_are_noted |= noted.ends_are_noted\n", "", _TEST_KILLED_START),
    Mutation("B112", _INTACT, "        self.ends_are_noted = False\n        await", "        await", _TEST_KEPT),
    Mutation(
        "B112", _MANAGER,
        "        self.checkpoints.correct()\n",
        "",
        _TEST_KILL,
    ),
    Mutation(
        "B112", _CHECKPOINTS,
        "        self.recovery_points.correct()\n",
        "",
        f"{_TEST}::test_recovery_point_beyond_a_lost_end_does_not_count_again",
    ),
    Mutation(
        "B112", _MANAGER,
        "            self.checkpoints.release((topic_partition,))\n            target",
        "            target",
        _TEST_STEPS,
    ),
    Mutation(
        "B112", _MANAGER,
        "        self.checkpoints.release((topic_partition,))\n        return",
        "        return",
        _TEST_STEPS,
    ),
    Mutation("B112", _CHECKPOINTS, " if not (log.failed or log.is_leaving)", " if not log.failed", _TEST_STEPS),
    Mutation(
        "B112", _CHECKPOINTS,
        "            self.remove()\n",
        "            raise\n",
        f"{_TEST}::test_deletion_on_a_full_disk_removes_the_checkpoint",
    ),
    Mutation(
        "B112", _CHECKPOINTS,
        "        return max(offsets.get(topic_partition, 0) for offsets in self._possible)\n",
        "        return self._possible[-1].get(topic_partition, 0)\n",
        f"{_TEST}::test_truncation_while_a_lower_high_watermark_is_being_written_rewrites_it",
    ),
    Mutation(
        "B112", _CHECKPOINTS,
        "[self.high_watermarks, self.recovery_points] if ends_are_noted else [self.high_watermarks]",
        "[self.high_watermarks]",
        f"{_TEST}::test_directory_that_is_missing_after_a_clean_shutdown_is_damage_without_the_high_watermarks",
    ),
    Mutation("B112", _LOG, "self.lower_checkpointed_high_watermark(least_end)", "pass", _TEST_STEPS),
    Mutation("B112", _LOG, "(offset, log_start_offset, 0)", "(offset, log_start_offset, offset)", _TEST_STEPS),
    Mutation(
        "B112", "broker/storage/log_segment.py",
        "    for segment in reversed(segments):\n",
        "    for segment in segments:\n",
        _TEST_STEPS,
    ),
)  # fmt: skip
