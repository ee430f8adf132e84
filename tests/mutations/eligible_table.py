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
_TEST_REGISTRATIONS: Final = "tests/simulation/test_lost_registrations.py"
_TEST_INTACT: Final = "tests/unit/broker/storage/test_intact_logs.py"
_TEST_LEVELS: Final = "tests/unit/coordinator/controller/test_eligible_levels.py"
_RECOVERY: Final = "coordinator/controller/unclean_recovery.py"
_LOG_ENDS: Final = "coordinator/controller/log_ends.py"
_WAITS: Final = "coordinator/controller/recovery_waits.py"
_TEST_RECOVERY: Final = "tests/unit/coordinator/controller/test_unclean_recovery.py"
_TEST_RECOVERIES: Final = "tests/simulation/test_unclean_recovery.py"
_TEST_LOG_ENDS: Final = "tests/unit/coordinator/controller/test_log_ends.py"
_TEST_LEADERLESS: Final = "tests/unit/coordinator/controller/test_leaderless_partitions.py"
_READER: Final = "broker/replication/fetch_reader.py"
_PROGRESS: Final = "broker/replication/replica_progress.py"
_TEST_EMPTIED: Final = "tests/unit/broker/handlers/test_emptied_followers.py"
_TEST_REPLICAS: Final = "tests/unit/broker/replication/test_replica_manager.py"

ELIGIBLE_MUTATIONS: Final = (
    Mutation(
        "B57", _ELIGIBLE,
        "    isr = _able(state.isr, standing) or _able(standing.in_order(state.elr), standing)[:1]\n",
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
        "B57", _RECOVERY,
        "            absent = [member for member in members if member not in standing.broken]\n",
        "            absent = list[int]()\n",
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
        "usable=cluster.usable_brokers(partition, [member for member in members if member not in broken]),",
        "usable=cluster.usable_brokers(partition, members),",
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
        "B57", _ELIGIBLE,
        "    return replace(decided, judged_at=written_at if is_first else before.judged_at)\n",
        "    return decided\n",
        f"{_TEST_STORIES}::test_replicas_that_were_away_are_whole_although_the_level_was_raised_only_before",
    ),
    Mutation(
        "B57", "coordinator/controller/reassignments.py",
        "        return judged_as_before(state, versioned.state, versioned.mzxid)\n",
        "        return state\n",
        f"{_TEST_STORIES}"
        "::test_damaged_replica_does_not_count_as_whole_after_the_replicas_were_put_in_another_order",
    ),
    Mutation(
        "B57", _ELIGIBLE,
        "    return judged_as_before(waiting, state, standing.written_at)\n",
        "    return waiting\n",
        f"{_TEST_ELIGIBLE}::test_waiting_partition_without_epochs_is_judged_by_the_state_before_it_waited",
    ),
    Mutation(
        "B57", _STANDING,
        "judged_at is not None and broker.has_kept_since(judged_at)\n",
        "False\n",
        f"{_TEST_STANDING}::test_member_without_epoch_is_judged_by_the_last_state_in_which_none_had_one",
    ),
    Mutation(
        "B57", "coordinator/controller/reassignment.py",
        "    members = {*state.isr, *state.elr} - set(broken)\n",
        "    members = {*state.isr, *state.elr}\n",
        "tests/unit/coordinator/controller/test_reassignment.py"
        "::test_replica_that_lost_its_log_does_not_count_as_kept_by_a_reassignment",
    ),
    Mutation(
        "B57", "coordinator/controller/leader_elections.py",
        "        fit = fit_to_lead(context.state, versioned, context.state.reliable_brokers(partition))\n",
        "        fit = context.state.reliable_brokers(partition)\n",
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
        "self.intact_since <= epoch <= until)\n",
        "self.intact_since <= epoch)\n",
        f"{_TEST_STANDING}::test_member_is_broken_unless_its_logs_are_intact_since_its_recorded_epoch",
    ),
    Mutation(
        "B105", _INTACT,
        "        if not closed_cleanly and (mark_epoch is not None or not self._is_here(noted.identity)):\n",
        "        if not closed_cleanly and mark_epoch is not None:\n",
        f"{_TEST_INTACT}::test_loss_of_power_breaks_the_logs_also_after_another_kill",
    ),
    Mutation(
        "B105", _INTACT,
        "IntactEpochs(last_epoch if self.epochs is None else self.epochs.since, last_epoch)",
        "self.epochs",
        f"{_TEST_REGISTRATIONS}::test_leader_that_is_killed_as_it_registers_leads_again",
    ),
    Mutation(
        "B105", _INTACT,
        "            if last_session in self._sessions:\n",
        "            if True:\n",
        f"{_TEST_INTACT}::test_epochs_end_where_another_directory_was_registered",
    ),
    Mutation(
        "B105", _INTACT,
        "        if not is_out_of_space(error) or not self._disk.exists(self._path):\n",
        "        if True:\n",
        f"{_TEST_REGISTRATIONS}::test_leader_that_is_killed_again_and_again_on_a_full_disk_leads_again",
    ),
    Mutation(
        "B105", _INTACT,
        "        if self._failed_meanwhile:\n",
        "        if False:\n",
        f"{_TEST_REGISTRATIONS}::test_log_that_fails_while_its_broker_is_registered_counts_as_damaged",
    ),
    Mutation(
        "B105", _INTACT,
        "        if size < len(content):\n",
        "        if False:\n",
        f"{_TEST_INTACT}::test_full_disk_keeps_what_was_noted_before_unless_it_can_be_overwritten",
    ),
    Mutation(
        "B105", _INTACT,
        "            lines.append(_ENDED)\n",
        "            pass\n",
        f"{_TEST_INTACT}::test_epochs_that_have_ended_do_not_go_on_with_the_next_start",
    ),
    Mutation(
        "B105", _STATE,
        "            or self._kept_before(epoch)\n",
        "",
        f"{_TEST_REGISTRATIONS}::"
        "test_replica_leads_although_its_broker_was_once_started_with_an_empty_directory",
    ),
    Mutation(
        "B105", "coordinator/controller/membership.py",
        ", version=last.stat.version),\n",
        "),\n",
        "tests/unit/coordinator/controller/test_controller.py::TestControllerEpoch",
    ),
    Mutation(
        "B105", _INTACT,
        "        closed_cleanly = mark_epoch == noted.epochs.until",
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
        "        return is_identity(identity, present) and not present.startswith(UNKNOWN_BOOT)\n",
        "        return is_identity(identity, present)\n",
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
        "B122", _READER,
        "        if (position.last_fetched_epoch != NO_EPOCH or self._params.names_epochs) and not (\n",
        "        if position.last_fetched_epoch != NO_EPOCH and not (\n",
        "tests/simulation/test_emptied_replicas.py"
        "::test_emptied_replica_copies_what_was_written_where_the_log_began_again",
    ),
    Mutation(
        "B122", "broker/handlers/fetch.py",
        "            names_epochs=context.api_version >= _FIRST_VERSION_WITH_LAST_EPOCH,\n",
        "            names_epochs=True,\n",
        f"{_TEST_EMPTIED}::test_follower_that_cannot_name_an_epoch_is_not_judged_by_it",
    ),
    Mutation(
        "B122", _PROGRESS,
        "        if broker in self.in_sync.complete:\n            return False\n", "",
        f"{_TEST_EMPTIED}::test_emptied_follower_with_everything_acknowledged_keeps_its_end",
    ),
    Mutation(
        "B122", _PROGRESS,
        "        follower.begin_anew()\n", "",
        f"{_TEST_EMPTIED}::test_follower_that_is_to_begin_anew_does_not_join_by_an_earlier_fetch",
    ),
    Mutation(
        "B122", _PROGRESS,
        " or log_start_offset <= self._log.log_start_offset:\n", ":\n",
        f"{_TEST_EMPTIED}::test_emptied_follower_that_starts_where_its_leader_starts_goes_on",
    ),
    Mutation(
        "B106", "broker/replication/isr.py",
        "        if self.eligible:\n            return True\n",
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
        "    if stays and not state.elr and not (state.last_known_elr and is_large_enough):\n",
        "    if stays:\n",
        f"{_TEST_ELIGIBLE}::test_lower_minimum_clears_the_eligible_replicas_with_a_new_leader_epoch",
    ),
    Mutation(
        "B110", _RECOVERY,
        "(ends[each].offset >= committed, ends[each])",
        "ends[each]",
        f"{_TEST_RECOVERIES}::test_replica_that_was_behind_does_not_lead_before_logs_whose_records_were_deleted",
    ),
    Mutation(
        "B110", _RECOVERY,
        "    absent = uncertain or [each for each in awaited if each not in there]\n",
        "    absent = uncertain\n",
        f"{_TEST_RECOVERY}::test_leader_follows_from_the_strategy_and_the_log_ends",
    ),
    Mutation(
        "B110", _RECOVERY,
        "[*there, *others] if are_known else there",
        "[*there, *others]",
        f"{_TEST_RECOVERY}::test_sole_member_that_does_not_report_is_elected_after_a_bounded_time",
    ),
    Mutation(
        "B110", _RECOVERY,
        "unreported, remembered=there)",
        "unreported, remembered=ranked)",
        f"{_TEST_RECOVERY}::test_replica_that_has_been_behind_is_not_remembered",
    ),
    Mutation(
        "B110", _RECOVERY,
        "_ranked([*there, *others] if are_known else there, standing)",
        "_ranked(there, standing)",
        f"{_TEST_RECOVERIES}::test_replica_that_was_behind_leads_if_all_others_lost_more",
    ),
    Mutation(
        "B110", _RECOVERY,
        "    uncertain = [each for each in members if each not in standing.broken or each not in there]\n",
        "    uncertain = list[int]()\n",
        f"{_TEST_RECOVERY}::test_leader_follows_from_the_strategy_and_the_log_ends",
    ),
    Mutation(
        "B110", _RECOVERY,
        "in registered if each not in standing.unreachable or each in standing.log_ends]\n\n\ndef _unreported",
        "in registered]\n\n\ndef _unreported",
        f"{_TEST_RECOVERIES}::test_balanced_waits_for_a_member_that_is_registered_and_cannot_be_reached",
    ),
    Mutation(
        "B110", _RECOVERY,
        "    return sorted(there, key=lambda each: (ends[each].offset >= committed, ends[each]), reverse=True)\n",
        "    return list(there)\n",
        f"{_TEST_RECOVERIES}::test_member_that_was_dropped_leads_by_its_longer_log",
    ),
    Mutation(
        "B110", _RECOVERY,
        "committed, ends[each]), reverse=True)\n",
        "committed, ends[each][::-1]), reverse=True)\n",
        f"{_TEST_RECOVERY}::test_leader_follows_from_the_strategy_and_the_log_ends",
    ),
    Mutation(
        "B110", _RECOVERY,
        "not (waited and self.is_timed):\n",
        "not waited:\n",
        f"{_TEST_RECOVERY}::test_leader_follows_from_the_strategy_and_the_log_ends",
    ),
    Mutation(
        "B110", _ELIGIBLE,
        "    known = [*before.last_known_elr, *members] if members else []\n",
        "    known = list[int]()\n",
        f"{_TEST_RECOVERIES}::test_member_that_was_dropped_leads_by_its_longer_log",
    ),
    Mutation(
        "B110", _ELIGIBLE,
        "    known = [*before.last_known_elr, *members] if members else []\n",
        "    known = list(members)\n",
        f"{_TEST_ELIGIBLE}::test_broken_member_is_known_last_until_the_isr_is_large_enough_again",
    ),
    Mutation(
        "B110", _ELIGIBLE,
        "        last_known_elr=tuple(others) if standing.effective_min_isr > 1 else (),\n",
        "        last_known_elr=(),\n",
        f"{_TEST_ELIGIBLE}"
        "::test_leader_that_breaks_before_the_isr_is_large_enough_is_compared_with_the_others_again",
    ),
    Mutation(
        "B110", _ELIGIBLE,
        " and not (state.last_known_elr and is_large_enough):\n",
        ":\n",
        f"{_TEST_ELIGIBLE}::test_lower_minimum_clears_what_was_known_last",
    ),
    Mutation(
        "B110", "coordinator/metadata_store/znodes.py",
        "        content[\"last_known_elr\"] = list(state.last_known_elr)\n",
        "        pass\n",
        f"{_TEST_RECOVERIES}::test_new_controller_goes_on_waiting_under_balanced",
    ),
    Mutation(
        "B110", _LOG_ENDS,
        "            if report.leader_epoch == leader_epoch and broker_epochs",
        "            if broker_epochs",
        f"{_TEST_LOG_ENDS}::test_log_end_holds_at_its_leader_epoch_and_for_its_incarnation",
    ),
    Mutation(
        "B110", _LOG_ENDS,
        " and broker_epochs.get(broker_id) == report.broker_epoch\n",
        "\n",
        f"{_TEST_LOG_ENDS}::test_log_end_holds_at_its_leader_epoch_and_for_its_incarnation",
    ),
    Mutation(
        "B110", _WAITS,
        "            self._waits.pop(partition, None)\n        elif",
        "            pass\n        elif",
        f"{_TEST_LEADERLESS}::test_wait_begins_anew_when_a_broker_comes_back_again",
    ),
    Mutation(
        "B110", "coordinator/controller/leader_elections.py",
        "            strategy = RecoveryStrategy.LONGEST_LOG  # As far as the logs are known now.\n",
        "            strategy = RecoveryStrategy.NONE\n",
        f"{_TEST_LEADERLESS}::test_operator_elects_the_longest_known_log_without_a_wait",
    ),
    Mutation(
        "B110", "broker/replication/replica_control.py",
        "        if partition.leader_id != NO_LEADER or partition.leader_epoch != state.leader_epoch:\n",
        "        if False:\n",
        f"{_TEST_REPLICAS}::test_log_end_is_not_reported_for_a_state_that_a_newer_one_replaced",
    ),
    Mutation(
        "B110", "broker/storage/leader_epoch_cache.py",
        "        epoch = self.epoch_for_offset(log_end_offset - 1)\n",
        "        epoch = self.latest_epoch\n",
        "tests/unit/broker/storage/test_leader_epoch_cache.py::test_last_written_epoch_is_that_of_the_last_batch",
    ),
)  # fmt: skip
