"""The safeguards of eligible leader replicas, and what shows that each is missing."""

from typing import Final

from tests.mutations.mutation import Mutation

_ELIGIBLE: Final = "coordinator/controller/eligible_leaders.py"
_STANDING: Final = "coordinator/controller/replica_standing.py"
_STATE: Final = "coordinator/controller/cluster_state.py"
_INTACT: Final = "broker/storage/intact_logs.py"
_TEST_ELIGIBLE: Final = "tests/unit/coordinator/controller/test_eligible_leaders.py"
_TEST_STANDING: Final = "tests/unit/coordinator/controller/test_replica_standing.py"
_TEST_STORIES: Final = "tests/simulation/test_eligible_leaders.py"
_TEST_INTACT: Final = "tests/unit/broker/storage/test_intact_logs.py"
_TEST_LEVELS: Final = "tests/unit/coordinator/controller/test_eligible_levels.py"

ELIGIBLE_MUTATIONS: Final = (
    Mutation(
        "B57", _ELIGIBLE,
        "    isr = _able(state.isr, standing) or _able(_in_order(state.elr, standing), standing)[:1]\n",
        "    isr = _able(state.isr, standing)\n",
        f"{_TEST_STORIES}::test_eligible_replica_leads_when_the_last_in_sync_replica_lost_power",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "if member in standing.usable and member not in standing.broken)",
        "if member in standing.usable)",
        f"{_TEST_STORIES}::test_cluster_that_dies_at_once_loses_nothing_with_one_copy",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "    members = [*before.isr, *before.elr] if len(decided.isr) < standing.effective_min_isr else []\n",
        "    members = list[int]()\n",
        f"{_TEST_STORIES}::test_eligible_replica_leads_when_the_last_in_sync_replica_lost_power",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "    members = [*before.isr, *before.elr] if len(decided.isr) < standing.effective_min_isr else []\n",
        "    members = [*before.isr, *before.elr]\n",
        f"{_TEST_ELIGIBLE}::test_member_that_leaves_an_isr_that_is_large_enough_is_not_eligible",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        " and member in standing.replicas and member not in standing.broken\n",
        " and member in standing.replicas\n",
        f"{_TEST_ELIGIBLE}::test_broken_member_neither_leads_nor_is_eligible",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "    if standing.broken and {*state.isr, *state.elr} <= set(standing.broken):\n",
        "    if standing.broken:\n",
        f"{_TEST_ELIGIBLE}::test_partition_waits_while_an_absent_member_may_be_whole",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "    if member not in standing.incarnations or (keep and known is not None):\n",
        "    if member not in standing.incarnations:\n",
        f"{_TEST_ELIGIBLE}::test_members_keep_their_recorded_epoch_while_they_are_away",
    ),
    Mutation(
        "B57", _STANDING,
        "            is_whole = broker.has_kept(known)\n",
        "            is_whole = broker.epoch <= versioned.mzxid\n",
        f"{_TEST_STANDING}::test_member_is_broken_unless_its_logs_are_intact_since_its_recorded_epoch",
    ),
    Mutation(
        "B57", _STANDING,
        "usable=cluster.usable_brokers([member for member in members if member not in broken]),",
        "usable=cluster.usable_brokers(members),",
        f"{_TEST_STANDING}::test_unreachable_whole_member_counts_as_usable_beside_reachable_broken_one",
    ),
    Mutation(
        "B57", "coordinator/controller/isr_changes.py",
        "epoch in (UNKNOWN_EPOCH, broker.epoch) and broker_id not in broken\n",
        "epoch in (UNKNOWN_EPOCH, broker.epoch)\n",
        "tests/unit/coordinator/controller/test_isr_changes.py::TestDecision",
    ),
    Mutation(
        "B57", "coordinator/controller/reassignments.py",
        "        fit = fit_to_lead(cluster, versioned, usable)\n",
        "        fit = usable\n",
        f"{_TEST_STORIES}::test_reassignment_elects_no_replica_that_lost_its_tail",
    ),
    Mutation(
        "B57", "coordinator/controller/leader_elections.py",
        "        fit = fit_to_lead(context.state, versioned, reliable)\n",
        "        fit = reliable\n",
        f"{_TEST_STORIES}::test_reassignment_elects_no_replica_that_lost_its_tail",
    ),
    Mutation(
        "B57", "broker/replication/followed_partition.py",
        "        return (is_due or log.flush_state.has_unsynced_truncation) and not log.failed\n",
        "        return is_due and not log.failed\n",
        "tests/unit/broker/replication/test_followed_partition.py::test_cut_is_synced_before_the_next_fetch",
    ),
    Mutation(
        "B105", "broker/storage/log_maintenance.py",
        "            self._logs.directory.intact.note_again()\n",
        "            pass\n",
        f"{_TEST_STORIES}::test_registration_on_a_full_disk_breaks_no_logs",
    ),
    Mutation(
        "B56", "coordinator/controller/isr_changes.py",
        " or (epoch == UNKNOWN_EPOCH and not cluster.keeps_eligible())\n",
        " or epoch == UNKNOWN_EPOCH\n",
        f"{_TEST_LEVELS}::test_follower_that_registered_anew_joins_by_a_request_that_names_this_incarnation",
    ),
    Mutation(
        "B56", "coordinator/controller/alter_partition.py",
        "        isr=dict.fromkeys(data.new_isr, UNKNOWN_EPOCH) | epochs,\n",
        "        isr=epochs | dict.fromkeys(data.new_isr, UNKNOWN_EPOCH),\n",
        "tests/unit/coordinator/controller/test_isr_changes.py::TestRequest",
    ),
    Mutation(
        "B105", _STATE,
        "self.intact_since <= epoch <= until)",
        "self.intact_since <= epoch)",
        f"{_TEST_STANDING}::test_member_is_broken_unless_its_logs_are_intact_since_its_recorded_epoch",
    ),
    Mutation(
        "B105", _INTACT,
        "        if not closed_cleanly and (mark_epoch is not None or not self._is_here(identity)):\n",
        "        if not closed_cleanly and mark_epoch is not None:\n",
        f"{_TEST_STORIES}::test_cluster_that_dies_at_once_loses_nothing_with_one_copy",
    ),
    Mutation(
        "B105", _INTACT,
        "        closed_cleanly = mark_epoch == noted.until",
        "        closed_cleanly = mark_epoch is not None",
        f"{_TEST_INTACT}::test_mark_of_an_incarnation_that_noted_nothing_proves_nothing",
    ),
    Mutation(
        "B105", _INTACT,
        "            self._disk.remove(self._path)\n            self._disk.sync_dir(self._log_dir)\n",
        "            pass\n",
        "tests/unit/broker/storage/test_log_manager.py::test_failed_log_is_damaged_at_the_next_start",
    ),
    Mutation(
        "B105", _INTACT,
        "        return identity == present and not present.startswith(UNKNOWN_BOOT)\n",
        "        return identity == present\n",
        f"{_TEST_INTACT}::test_machine_that_cannot_name_its_boot_needs_a_clean_shutdown",
    ),
    Mutation(
        "B105", "broker/storage/recovery.py",
        "                self.on_damage(f\"{self.directory}: segment {segment.base_offset}: {error}\")\n",
        "                pass\n",
        "tests/unit/broker/storage/test_log_manager.py::test_log_that_recovery_cuts_is_damaged_although_power_held",
    ),
    Mutation(
        "B105", "broker/storage/log_manager.py",
        "        self.directory.intact.note_damage(f\"the log in {log.directory} failed\")\n",
        "",
        "tests/unit/broker/storage/test_log_manager.py::test_failed_log_is_damaged_at_the_next_start",
    ),
    Mutation(
        "B106", "broker/replication/isr.py",
        "        if self.others_are_eligible:\n            return True\n",
        "",
        f"{_TEST_STORIES}::test_high_watermark_stands_while_others_are_eligible_although_the_minimum_was_lowered",
    ),
    Mutation(
        "B106", "coordinator/controller/alter_partition.py",
        "        eligible_leader_replicas=list(state.elr),\n",
        "",
        f"{_TEST_LEVELS}::test_new_cluster_remembers_eligible_replicas_and_names_them_to_all",
    ),
    Mutation(
        "B106", "coordinator/controller/control_requests.py",
        "            leader_recovery_state=int(state.leader_recovery_state),\n"
        "            eligible_leader_replicas=list(state.elr),\n",
        "            leader_recovery_state=int(state.leader_recovery_state),\n",
        f"{_TEST_LEVELS}::test_new_cluster_remembers_eligible_replicas_and_names_them_to_all",
    ),
    Mutation(
        "B106", _ELIGIBLE,
        "    if stays and not state.elr:\n",
        "    if stays:\n",
        f"{_TEST_ELIGIBLE}::test_lower_minimum_clears_the_eligible_replicas_with_a_new_leader_epoch",
    ),
)  # fmt: skip
