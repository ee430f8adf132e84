"""Safeguards, each with the text that makes it, what stands there when it is gone, and the test that must notice.

The rows are those of ``docs/internals/invariants.md``. A text occurs exactly once in its file, which
``tests/tidy/test_invariants.py`` checks, so a change of a safeguard changes its line here.
"""

from typing import Final

from tests.mutations.access_table import ACCESS_MUTATIONS
from tests.mutations.audit_table import AUDIT_MUTATIONS
from tests.mutations.client_table import CLIENT_MUTATIONS
from tests.mutations.configuration_table import CONFIGURATION_MUTATIONS
from tests.mutations.descriptor_table import DESCRIPTOR_MUTATIONS
from tests.mutations.eligible_table import ELIGIBLE_MUTATIONS
from tests.mutations.flush_table import FLUSH_MUTATIONS
from tests.mutations.history_table import HISTORY_MUTATIONS
from tests.mutations.listener_table import LISTENER_MUTATIONS
from tests.mutations.lost_end_table import LOST_END_MUTATIONS
from tests.mutations.mutation import Mutation as Mutation
from tests.mutations.oauth_table import OAUTH_MUTATIONS
from tests.mutations.old_formats_table import OLD_FORMAT_MUTATIONS
from tests.mutations.quota_table import QUOTA_MUTATIONS
from tests.mutations.security_table import SECURITY_MUTATIONS
from tests.mutations.tls_table import TLS_MUTATIONS
from tests.mutations.token_table import TOKEN_MUTATIONS
from tests.mutations.zookeeper_table import ZOOKEEPER_MUTATIONS

_STATE: Final = "coordinator/transaction/state.py"
_STATE_MANAGER: Final = "coordinator/transaction/state_manager.py"
_COORDINATOR: Final = "coordinator/transaction/coordinator.py"
_CHALLENGE: Final = "coordinator/transaction/connection_challenge.py"
_OWNERS: Final = "broker/transactions/partition_owners.py"
_BATCH_CHALLENGE: Final = "broker/transactions/batch_challenge.py"
_SWEEPS: Final = "coordinator/transaction/sweeps.py"
_LOG_RECORDS: Final = "coordinator/transaction/log_records.py"
_MARKERS: Final = "coordinator/transaction/marker_sender.py"
_SHARD: Final = "coordinator/group/shard.py"
_OFFSETS: Final = "coordinator/group/offsets.py"
_OFFSET_REQUESTS: Final = "coordinator/group/offset_requests.py"
_GROUP: Final = "coordinator/group/group.py"
_VERIFICATION: Final = "broker/transactions/verification.py"
_SENDER: Final = "broker/transactions/add_partitions_to_txn_sender.py"
_VERIFICATION_ERRORS: Final = "broker/transactions/verification_errors.py"
_VERIFICATION_STATE: Final = "broker/storage/verification_state.py"
_PARTITION: Final = "broker/replication/partition.py"
_LEADING: Final = "broker/replication/leading_partition.py"
_PROGRESS: Final = "broker/replication/replica_progress.py"
_READER: Final = "broker/replication/fetch_reader.py"
_ISR: Final = "broker/replication/isr.py"
_FOLLOWED: Final = "broker/replication/followed_partition.py"
_REPLICAS: Final = "broker/replication/replica_manager.py"
_PRODUCE: Final = "broker/handlers/produce.py"
_LOG: Final = "broker/storage/partition_log.py"
_PRODUCERS: Final = "broker/storage/producer_state.py"
_PRODUCER_ENTRY: Final = "broker/storage/producer_state_entry.py"
_TEST_WITHOUT_ID: Final = "tests/simulation/test_topics_without_id.py"
_TEST_EARLY: Final = "tests/unit/broker/handlers/test_early_batches.py"
_TEST_PROBATION: Final = "tests/simulation/test_probation.py"
_REFUSED_BATCHES: Final = "broker/storage/refused_batches.py"
_COMPACTION: Final = "broker/storage/compaction.py"
_CLEANER: Final = "broker/storage/cleaner.py"
_CONNECTION: Final = "broker/network/connection.py"
_FRAMES: Final = "broker/network/frames.py"
_HEARTBEATS: Final = "broker/network/heartbeats.py"
_SLOTS: Final = "broker/network/connection_slots.py"
_SOCKET_SERVER: Final = "broker/network/socket_server.py"
_IMAGE: Final = "coordinator/controller/cluster_image.py"
_ISR_CHANGES: Final = "coordinator/controller/isr_changes.py"

_FULL_DISK: Final = "tests/simulation/test_full_disk.py"
_OPEN_FILES: Final = "tests/simulation/test_open_files.py"
_LATE: Final = "tests/scenarios/test_late_requests.py"
_SCENARIOS_2: Final = "tests/scenarios/test_version_2.py"
_TEST_CHALLENGE: Final = "tests/unit/coordinator/transaction/test_connection_challenge.py"
_SCENARIOS_CHALLENGE: Final = "tests/scenarios/test_connection_challenge.py"
_SCENARIOS_BATCHES: Final = "tests/scenarios/test_late_batches.py"
_SCENARIOS_TIMELY: Final = "tests/scenarios/test_timely_connections.py"
_SCENARIOS_EXPIRED: Final = "tests/scenarios/test_expired_producers.py"
_TEST_OWNERS: Final = "tests/unit/broker/transactions/test_partition_owners.py"
_FAILURES: Final = "tests/scenarios/test_transaction_failures.py"
_UNIT_2: Final = "tests/unit/coordinator/transaction/test_version_2.py"
_TEST_TABLES: Final = "tests/unit/coordinator/transaction/test_tables.py"
_TEST_STATE: Final = "tests/unit/coordinator/transaction/test_state.py"
_TEST_STATE_MANAGER: Final = "tests/unit/coordinator/transaction/test_state_manager.py"
_TEST_COORDINATOR: Final = "tests/unit/coordinator/transaction/test_coordinator.py"
_TEST_MARKERS: Final = "tests/unit/coordinator/transaction/test_marker_sender.py"
_TEST_EVENT_QUEUE: Final = "tests/unit/coordinator/controller/test_event_queue.py"
_TEST_GROUP: Final = "tests/unit/coordinator/group/test_group.py"
_TEST_OFFSETS: Final = "tests/unit/coordinator/group/test_offsets.py"
_TEST_OFFSET_REQUESTS: Final = "tests/unit/coordinator/group/test_offset_requests.py"
_TEST_DESERTED_GROUP: Final = "tests/unit/coordinator/group/test_deserted.py"
_TEST_DESERTED_TRANSACTION: Final = "tests/unit/coordinator/transaction/test_deserted.py"
_TEST_MARKER_WRITE: Final = "tests/unit/broker/handlers/test_write_txn_markers.py"
_TEST_CONTROLLER: Final = "tests/unit/coordinator/controller/test_controller.py"
_TEST_CONTROL: Final = "tests/unit/coordinator/controller/test_control_requests.py"
_TEST_IMAGE: Final = "tests/unit/coordinator/controller/test_cluster_image.py"
_TEST_REPLICA_MANAGER: Final = "tests/unit/broker/replication/test_replica_manager.py"
_TEST_ISR_CHANGES: Final = "tests/unit/coordinator/controller/test_isr_changes.py"
_TEST_CLUSTER: Final = "tests/simulation/test_cluster.py"
_TEST_REPLICAS: Final = "tests/simulation/test_cluster_replicas.py"
_TEST_MINIMUMS: Final = "tests/unit/coordinator/controller/test_in_sync_minimums.py"
_TEST_CUT_LINKS: Final = "tests/simulation/test_cut_links.py::TestCutLink"
_TEST_PRODUCE: Final = "tests/unit/broker/handlers/test_produce.py"
_TEST_FETCH: Final = "tests/unit/broker/handlers/test_fetch.py"
_TEST_VERIFICATION: Final = "tests/unit/broker/handlers/test_transaction_verification.py"
_TEST_VERSION_2: Final = "tests/unit/broker/handlers/test_transaction_verification_in_version_2.py"
_TEST_ELSEWHERE: Final = "tests/unit/broker/handlers/test_transaction_verification_elsewhere.py"
_TEST_SENDER: Final = "tests/unit/broker/transactions/test_add_partitions_to_txn_sender.py"
_TEST_PARTITION: Final = "tests/unit/broker/replication/test_partition.py"
_TEST_ISR: Final = "tests/unit/broker/replication/test_isr.py"
_TEST_FOLLOWED: Final = "tests/unit/broker/replication/test_followed_partition.py"
_TEST_FOLLOWER: Final = "tests/unit/broker/handlers/test_follower_fetch.py"
_TEST_REPLICATION: Final = "tests/simulation/test_replication.py"
_HISTORIES: Final = "tests/simulation/test_replication_histories.py"
_TEST_LOG: Final = "tests/unit/broker/storage/test_partition_log.py"
_TEST_PRODUCERS: Final = "tests/unit/broker/storage/test_producer_state.py"
_TEST_FAILURES: Final = "tests/unit/broker/storage/test_log_failures.py"
_TEST_MANAGER: Final = "tests/unit/broker/storage/test_log_manager.py"
_TEST_CLEANER: Final = "tests/unit/broker/storage/test_cleaner.py"
_TEST_ORDER: Final = "tests/unit/broker/network/test_request_order.py"
_TEST_TURNS: Final = "tests/unit/broker/network/test_loop_turns.py"
_TEST_SNAPSHOTS: Final = "tests/unit/broker/storage/test_producer_state.py"
_TEST_CONNECTION: Final = "tests/unit/broker/network/test_connection.py"
_TEST_HEARTBEATS: Final = "tests/unit/broker/network/test_heartbeats.py"
_TEST_SLOTS: Final = "tests/unit/broker/network/test_connection_slots.py"
_TEST_SOCKET_SERVER: Final = "tests/unit/broker/network/test_socket_server.py"
_TEST_BOUNDS: Final = "tests/unit/broker/network/test_connection_bounds.py"
_TEST_FRAMES: Final = "tests/unit/broker/network/test_frames.py"

MUTATIONS: Final = (
    *CLIENT_MUTATIONS,
    *ELIGIBLE_MUTATIONS,
    *LISTENER_MUTATIONS,
    *LOST_END_MUTATIONS,
    *FLUSH_MUTATIONS,
    *OAUTH_MUTATIONS,
    *TLS_MUTATIONS,
    *DESCRIPTOR_MUTATIONS,
    *TOKEN_MUTATIONS,
    *ACCESS_MUTATIONS,
    *AUDIT_MUTATIONS,
    *CONFIGURATION_MUTATIONS,
    *OLD_FORMAT_MUTATIONS,
    *QUOTA_MUTATIONS,
    *ZOOKEEPER_MUTATIONS,
    *SECURITY_MUTATIONS,
    *HISTORY_MUTATIONS,
    Mutation(
        "B01", _STATE,
        "    if producer.epoch != metadata.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n    return",
        "    return",
        f"{_LATE}::test_end_txn_after_a_successor_began_ends_nothing",
    ),
    Mutation(
        "B01", _STATE,
        "    if producer != (metadata.producer_id, metadata.producer_epoch):\n",
        "    if state in COMPLETE_STATES and producer != (metadata.producer_id, metadata.producer_epoch):\n",
        f"{_SCENARIOS_2}::test_late_end_txn_in_a_later_transaction_ends_nothing",
    ),
    Mutation(
        "B01", _STATE,
        "    if state in COMPLETE_STATES and is_live and (is_bumped or is_rotated):\n",
        "    if False:\n",
        f"{_SCENARIOS_2}::test_retried_end_txn_gets_the_same_response",
    ),
    Mutation(
        "B01", _STATE,
        "    is_bumped = was_bumped and producer",
        "    is_bumped = producer",
        "tests/unit/coordinator/transaction/test_version_2.py"
        "::test_zombie_is_not_taken_for_a_successor_that_speaks_version_1",
    ),
    Mutation(
        "B107", _CHALLENGE,
        "        return False\n    owner.challenge(",
        "        return False\n    return False\n    owner.challenge(",
        f"{_SCENARIOS_CHALLENGE}::test_late_end_txn_over_another_connection_ends_nothing",
    ),
    Mutation(
        "B107", _CHALLENGE,
        "        return not self._awaited and self._responded_at is not None and request_number > self._responded_at\n",
        "        return True\n",
        f"{_SCENARIOS_CHALLENGE}::test_late_end_txns_in_one_write_end_nothing",
    ),
    Mutation(
        "B107", _CHALLENGE,
        " and request_number > self._responded_at\n",
        "\n",
        f"{_TEST_CHALLENGE}::test_requests_that_were_received_when_the_response_arrived_are_no_repetitions",
    ),
    Mutation(
        "B107", _CHALLENGE,
        "self.is_of(producer, connection_id) and self._action == action\n",
        "self.is_of(producer, connection_id)\n",
        f"{_TEST_CHALLENGE}::test_request_of_another_kind_is_no_repetition",
    ),
    Mutation(
        "B107", _CHALLENGE,
        "        return self.connection_id == connection_id and self.producer == producer\n",
        "        return self.connection_id == connection_id or self.producer != producer\n",
        f"{_SCENARIOS_CHALLENGE}::test_owner_is_unknown_after_a_restart",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "        self.in_hand += (callback,)\n",
        "        self.note_sent((callback,))\n",
        f"{_TEST_CONNECTION}::test_response_behind_one_that_is_awaited_is_not_noted",
    ),
    Mutation(
        "B107", _CHALLENGE,
        "        return not self._awaited and self._responded_at",
        "        return self._responded_at",
        f"{_TEST_CHALLENGE}::test_copies_that_arrive_one_after_the_other_are_no_repetitions",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        " and awaited[0].position <= arrived:\n",
        ":\n",
        f"{_TEST_CONNECTION}::test_response_that_has_not_arrived_is_not_noted",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "max(self._quiet_from, self.received_at + self._pause)\n",
        "self.received_at + self._pause\n",
        f"{_TEST_CONNECTION}::test_response_after_another_one_has_its_own_pause",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "max(self._quiet_from, self.received_at + self._pause)\n",
        "self._quiet_from\n",
        f"{_TEST_CONNECTION}::test_connection_that_is_not_quiet_is_noted_nevertheless",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "not (unread or self._frames or self._reader.has_part)\n",
        "not (unread or self._frames)\n",
        f"{_TEST_CONNECTION}::test_connection_with_half_a_request_is_not_quiet",
    ),
    Mutation(
        "B107", "broker/network/connection.py",
        "            slot.on_arrived = self._order.take_in_hand()\n",
        "            self._order.note_sent(self._order.take_in_hand())\n",
        f"{_TEST_CONNECTION}::test_response_behind_one_that_is_awaited_is_not_noted",
    ),
    Mutation(
        "B107", "broker/network/connection.py",
        "            slot.on_arrived += self._order.take_in_hand()\n",
        "            self._order.note_sent(self._order.take_in_hand())\n",
        f"{_TEST_CONNECTION}::test_response_of_a_coroutine_is_noted_when_it_is_known",
    ),
    Mutation(
        "B108", _OWNERS,
        "        if owner.producer != producer and entry is not None and entry.producer_epoch < producer.epoch:\n",
        "        if True:\n",
        f"{_SCENARIOS_CHALLENGE}::test_late_offsets_over_another_connection_are_not_committed",
    ),
    Mutation(
        "B108", _OWNERS,
        " and entry is not None and entry.producer_epoch < producer.epoch:\n",
        " and False:\n",
        f"{_SCENARIOS_CHALLENGE}::test_first_offsets_of_an_epoch_need_no_repetition",
    ),
    Mutation(
        "B108", _OWNERS,
        "return self.abort_offset == abort_offset and ",
        "return ",
        f"{_SCENARIOS_CHALLENGE}::test_late_offsets_of_an_aborted_transaction_are_not_committed_by_the_owner",
    ),
    Mutation(
        "B111", "broker/handlers/produce.py",
        "        if header.attributes & TRANSACTIONAL_BIT and acks != _NO_ACKS:\n",
        "        if False:\n",
        f"{_SCENARIOS_BATCHES}::test_batch_that_was_given_up_is_not_appended_in_the_next_transaction",
    ),
    Mutation(
        "B111", _PRODUCER_ENTRY,
        "                return None if header.attributes & _TRANSACTIONAL and self._has_ended(batch) else batch\n",
        "                return batch\n",
        f"{_SCENARIOS_BATCHES}::test_batch_with_a_number_of_an_aborted_transaction_is_no_duplicate",
    ),
    Mutation(
        "B111", _OWNERS,
        "return self.abort_offset == abort_offset and ",
        "return ",
        f"{_SCENARIOS_BATCHES}::test_batch_that_was_given_up_by_the_owner_is_not_appended_after_an_abort",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        "            return is_challenged(owner",
        '            return connection.client_software_name != "librdkafka" and is_challenged(owner',
        f"{_SCENARIOS_BATCHES}::test_client_is_not_trusted_by_its_name",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        " and to_ms(connection.connected_after) > last_doubt_ms(leading, entry)\n",
        "\n",
        f"{_SCENARIOS_BATCHES}::test_connection_that_is_newer_than_the_leadership_needs_no_repetition",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        "is_young = not has_aborted and ",
        "is_young = ",
        f"{_SCENARIOS_BATCHES}::test_connection_that_is_newer_than_an_abort_is_not_trusted",
    ),
    Mutation(
        "B111", _OWNERS,
        " and self.unknown_until_ms == unknown_until_ms\n",
        "\n",
        f"{_SCENARIOS_BATCHES}::test_batch_that_was_given_up_is_not_appended_after_its_producer_was_forgotten",
    ),
    Mutation(
        "B111", "broker/storage/producer_state.py",
        "            self.expired_ms = loop_ms\n",
        "",
        f"{_SCENARIOS_BATCHES}::test_batch_that_was_given_up_is_not_appended_after_its_producer_was_forgotten",
    ),
    Mutation(
        "B111", "broker/handlers/produce.py",
        "                partition.log.producer_state.withdraw_verification(header)\n",
        "",
        f"{_SCENARIOS_EXPIRED}"
        "::test_late_batch_does_not_hold_back_the_next_one_where_the_producer_was_forgotten",
    ),
    Mutation(
        "B111", "broker/transactions/verification.py",
        "                    guard.withdraw(batch.base_sequence)\n",
        "                    pass\n",
        f"{_SCENARIOS_EXPIRED}::test_late_batch_outside_of_a_transaction_does_not_hold_back_the_next_one",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        "            if owner.is_behind(producer, header.base_sequence, connection.id, connection.request_number()):\n",
        "            if False:\n",
        f"{_SCENARIOS_EXPIRED}"
        "::test_batches_in_flight_together_are_repeated_in_order_where_the_producer_was_forgotten",
    ),
    Mutation(
        "B111", _CHALLENGE,
        " and not challenge.is_met(request_number)\n",
        "\n",
        f"{_SCENARIOS_EXPIRED}::test_batch_whose_client_does_not_repeat_the_one_before_is_challenged_itself",
    ),
    Mutation(
        "B108", _OWNERS,
        " if entry is None else entry.unknown_until_ms\n",
        "\n",
        f"{_SCENARIOS_EXPIRED}::test_expiry_of_another_producer_does_not_let_late_offsets_overtake",
    ),
    Mutation(
        "B108", "coordinator/transaction/state_manager.py",
        "        if txn.acted_at * 1000 <= since_ms:\n",
        "        if False:\n",
        "tests/simulation/test_returning_leadership.py"
        "::test_late_offsets_over_the_coordinators_owner_do_not_overtake_those_of_another_leader",
    ),
    Mutation(
        "B111", "broker/storage/producer_snapshots.py",
        "    entry.aborted_epoch = epoch\n",
        "",
        f"{_TEST_SNAPSHOTS}::test_producer_of_a_snapshot_may_have_aborted",
    ),
    Mutation(
        "B111", _OWNERS,
        " and entry is not None and entry.producer_epoch < producer.epoch:\n",
        " and (entry is None or entry.producer_epoch < producer.epoch):\n",
        f"{_SCENARIOS_BATCHES}::test_batch_that_was_given_up_is_not_appended_to_a_topic_that_was_created_again",
    ),
    Mutation(
        "B111", "broker/network/loop_turns.py",
        "return self._noted[0] if",
        "return self._noted[-1] if",
        f"{_TEST_TURNS}::test_loop_that_stood_still_has_accepted_nothing_meanwhile",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "        position = self._writer.bytes_out\n",
        "        position = 2**62\n",
        f"{_TEST_ORDER}::test_repetition_over_a_connection_that_is_never_quiet_is_admitted_in_a_bounded_time",
    ),
    Mutation(
        "B107", "broker/dispatch/request.py",
        "        if self.order is not None and self.order.is_last():\n",
        "        if self.order is not None:\n",
        f"{_SCENARIOS_TIMELY}::test_request_in_one_write_behind_api_versions_changes_nothing",
    ),
    Mutation(
        "B107", "coordinator/transaction/coordinator.py",
        "        txn.acted_at = asyncio.get_running_loop().time()\n        return self._waits",
        "        return self._waits",
        f"{_SCENARIOS_TIMELY}::test_owner_that_acts_again_makes_a_connection_greeted_before_late",
    ),
    Mutation(
        "B107", "coordinator/transaction/state_manager.py",
        "max(self.opened_at, txn.acted_at)",
        "txn.acted_at",
        f"{_TEST_CHALLENGE}::test_connection_greeted_after_the_last_act_and_the_load_is_the_owner_at_once",
    ),
    Mutation(
        "B108", "broker/transactions/timely_connections.py",
        " and connection.greeted_at > owner.acted_at:\n",
        ":\n",
        f"{_SCENARIOS_TIMELY}::test_offsets_that_were_repeated_and_committed_do_not_come_back",
    ),
    Mutation(
        "B108", "broker/transactions/timely_connections.py",
        "        if owner.acted_at != NEVER:\n            return False\n",
        "",
        f"{_SCENARIOS_TIMELY}::test_offsets_over_the_coordinators_owner_do_not_overtake_those_of_the_groups_owner",
    ),
    Mutation(
        "B111", "broker/transactions/timely_connections.py",
        "to_ms(connection.greeted_at) > last_doubt_ms(leading, entry) and ",
        "",
        f"{_SCENARIOS_TIMELY}::test_batch_over_a_connection_greeted_after_the_abort_needs_no_repetition",
    ),
    Mutation(
        "B111", "coordinator/transaction/state_manager.py",
        "        return owner is not None and owner.is_owner(producer, connection.id)\n",
        "        return owner is not None\n",
        f"{_SCENARIOS_TIMELY}::test_batch_over_the_connection_that_acted_before_the_present_transaction_is_repeated",
    ),
    Mutation(
        "B111", "coordinator/transaction/coordinator.py",
        " or found[0].coordinator_epoch < marker_epoch:\n",
        ":\n",
        f"{_SCENARIOS_TIMELY}::test_coordinator_that_a_marker_has_overtaken_knows_no_owner",
    ),
    Mutation(
        "B111", "broker/transactions/markers.py",
        "        if not marker.commit:\n            producer_state.note_abort(",
        "        if False:\n            producer_state.note_abort(",
        f"{_SCENARIOS_TIMELY}::test_batch_over_a_connection_greeted_after_the_abort_needs_no_repetition",
    ),
    Mutation(
        "B107", "broker/network/request_order.py",
        "_Settling(self._awaited, self.received_bytes + unread)",
        "_Settling(self._awaited, self.received_bytes)",
        f"{_TEST_CONNECTION}::test_requests_in_the_socket_after_patience_were_sent_before",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        "is_challenged(owner, producer, header.base_sequence, connection)",
        "is_challenged(owner, producer, 0, connection)",
        f"{_SCENARIOS_BATCHES}::test_batch_behind_one_that_was_given_up_is_no_repetition",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        " and owner.awaits(producer, connection.id)\n",
        " and False\n",
        f"{_SCENARIOS_BATCHES}::test_batches_in_flight_over_a_new_connection_are_repeated_in_order",
    ),
    Mutation(
        "B111", _BATCH_CHALLENGE,
        "        if isinstance(admitted, Accept):\n",
        "        if isinstance(admitted, (Accept, Duplicate)):\n",
        f"{_SCENARIOS_BATCHES}::test_duplicate_over_a_new_connection_gets_the_response_of_the_first_time",
    ),
    Mutation(
        "B109", _PRODUCERS,
        "        return decision.offset >= 0 and decision <= entry.decision\n",
        "        return False\n",
        f"{_TEST_MARKER_WRITE}::test_late_marker_of_an_earlier_transaction_is_refused",
    ),
    Mutation(
        "B109", _PRODUCERS,
        "        return decision.offset >= 0 and decision <= entry.decision\n",
        "        return 0 <= decision.offset <= entry.decision.offset\n",
        f"{_TEST_MARKER_WRITE}::test_marker_of_a_later_coordinator_is_not_late_although_its_log_has_lost_its_end",
    ),
    Mutation(
        "B109", "broker/transactions/markers.py",
        "        if leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch):\n",
        "        if False:\n",
        f"{_TEST_MARKER_WRITE}::test_marker_that_was_sent_to_another_leadership_is_refused",
    ),
    Mutation(
        "B109", "coordinator/transaction/marker_sender.py",
        "        if names_leader:\n",
        "        if False:\n",
        "tests/unit/coordinator/transaction/test_marker_sender.py"
        "::test_marker_names_the_leaderships_that_it_is_sent_to",
    ),
    Mutation(
        "B123", "broker/transactions/markers.py",
        "        if topic_id not in (ZERO_UUID, known_id) and is_of_another_topic(known_id, topic_id):\n",
        "        if False:\n",
        f"{_TEST_MARKER_WRITE}::test_late_marker_of_a_deleted_topic_ends_nothing_in_the_next_topic_of_its_name",
    ),
    Mutation(
        "B123", "broker/transactions/markers.py",
        "        if topic_id not in (ZERO_UUID, known_id) and is_of_another_topic(known_id, topic_id):\n",
        "        if known_id != topic_id:\n",
        f"{_TEST_MARKER_WRITE}::test_marker_for_a_topic_whose_id_is_not_known_is_accepted",
    ),
    Mutation(
        "B123", "coordinator/transaction/marker_sender.py",
        "metadata.topic_id(partition.topic) if names_leader else ZERO_UUID\n",
        "ZERO_UUID\n",
        "tests/unit/coordinator/transaction/test_marker_sender.py::test_marker_names_the_topic_that_it_is_sent_to",
    ),
    Mutation(
        "B109", "coordinator/transaction/log_replay.py",
        "                txn.last_offset = offset\n",
        "",
        f"{_TEST_STATE_MANAGER}::test_decision_offset_of_a_prepared_transaction_survives_a_load",
    ),
    Mutation(
        "B02", _VERIFICATION,
        "            error = results[batch.partition]\n",
        "            error = ErrorCode.NONE\n",
        f"{_LATE}::test_batch_after_the_end_of_its_transaction_is_refused",
    ),
    Mutation(
        "B02", _SENDER,
        "errors.get(partition, ErrorCode.NETWORK_EXCEPTION)",
        "errors.get(partition, ErrorCode.NONE)",
        f"{_TEST_SENDER}::test_partition_that_response_omits_ends_with_network_exception",
    ),
    Mutation(
        "B02", "broker/peers/link.py",
        "at_least=LOWEST_VERSIONS.get(kind, 0)",
        "at_least=0",
        f"{_TEST_ELSEWHERE}::test_unreachable_coordinator_leaves_the_batch_unverified",
    ),
    Mutation(
        "B02", _STATE,
        "    error = check_producer(metadata, producer)\n    if error is not ErrorCode.NONE:\n        return error\n"
        "    if metadata.state in PREPARED_STATES:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n    is_ongoing",
        "    if metadata.state in PREPARED_STATES:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n    is_ongoing",
        f"{_SCENARIOS_2}::test_late_batch_in_a_later_transaction_is_refused",
    ),
    Mutation(
        "B02", _STATE,
        "    if metadata.start_ms + metadata.timeout_ms >= now_ms:\n",
        "    if metadata.client_transaction_version == 2 or metadata.start_ms + metadata.timeout_ms >= now_ms:\n",
        f"{_SCENARIOS_2}::test_transaction_of_a_dead_producer_ends_in_bounded_time",
    ),
    Mutation(
        "B03", _STATE,
        'partitions that were added before.\n    """\n',
        'partitions that were added before.\n    """\n    if txn.pending is not None:\n'
        "        return ErrorCode.CONCURRENT_TRANSACTIONS\n",
        f"{_TEST_STATE}::test_verification_reads_what_is_durable_also_while_a_transition_is_pending",
    ),
    Mutation(
        "B04", _PRODUCE,
        "        errors = await pending.decided()\n",
        "        errors = await pending.decided()\n        import asyncio\n        await asyncio.sleep(0.003)\n",
        f"{_LATE}::test_marker_does_not_come_between_verification_and_append",
    ),
    Mutation(
        "B04", "broker/handlers/txn_offset_commit.py",
        "        for error in unverified.values():\n",
        "        for error in list[ErrorCode]():\n",
        "tests/unit/broker/handlers/test_groups.py::test_commit_that_comes_after_its_transaction_is_refused",
    ),
    Mutation(
        "B04", _PRODUCERS,
        "            self._verifications.end(producer_id, header.producer_epoch, transaction_version)\n",
        "            pass\n",
        f"{_TEST_PRODUCERS}::test_marker_between_verification_and_append_invalidates_the_guard",
    ),
    Mutation(
        "B04", _VERIFICATION_STATE,
        "        if present is None or present is not guard:\n",
        "        if present is None:\n",
        f"{_TEST_PRODUCERS}::test_guard_is_not_taken_for_that_of_the_next_transaction",
    ),
    Mutation(
        "B04", _VERIFICATION,
        "            else:\n                self._check(batch, guard)\n",
        "",
        f"{_TEST_ELSEWHERE}::test_marker_between_verification_and_append_refuses_the_batch",
    ),
    Mutation(
        "B04", _VERIFICATION,
        "            else:\n                self._check(batch, guard)\n",
        "",
        f"{_TEST_ELSEWHERE}::test_marker_between_verification_and_offsets_refuses_them",
    ),
    Mutation(
        "B04", _LEADING,
        "        self.log.producer_state.forget_undecided()\n",
        "",
        f"{_TEST_ELSEWHERE}::test_leadership_lost_during_verification_refuses_the_batch",
    ),
    Mutation(
        "B05", _VERIFICATION,
        "            if waited >= self._longest_retry:\n",
        "            if waited >= 0:\n",
        f"{_TEST_ELSEWHERE}::test_produce_waits_for_the_previous_transaction_of_a_remote_coordinator",
    ),
    Mutation(
        "B05", _STATE,
        "    if txn.pending is not None:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n"
        "    error = check_producer(metadata, producer)\n",
        "    if txn.pending is not None:\n        return ErrorCode.NONE\n"
        "    error = check_producer(metadata, producer)\n",
        f"{_SCENARIOS_2}::test_first_batch_waits_for_the_transaction_before_it",
    ),
    Mutation(
        "B06", _PRODUCER_ENTRY,
        "        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH\n",
        "        return True\n",
        f"{_TEST_MARKER_WRITE}::test_marker_of_version_2_with_the_present_epoch_is_refused",
    ),
    Mutation(
        "B06", "broker/transactions/markers.py",
        "            transaction_version=marker.transaction_version,\n",
        "",
        f"{_TEST_MARKER_WRITE}::test_marker_of_version_2_with_the_present_epoch_is_refused",
    ),
    Mutation(
        "B06", _MARKERS,
        "            transaction_version=prepared.client_transaction_version,\n",
        "            transaction_version=0,\n",
        f"{_UNIT_2}::test_end_bumps_the_epoch_in_the_record_that_decides_it",
    ),
    Mutation(
        "B06", _PRODUCER_ENTRY,
        "        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH\n",
        "        return True\n",
        f"{_SCENARIOS_2}::test_marker_of_the_previous_transaction_does_not_end_the_present_one",
    ),
    Mutation(
        "B07", _PRODUCERS,
        "        if marker.coordinator_epoch < entry.coordinator_epoch:\n",
        "        if entry.txn_first_offset is None or marker.coordinator_epoch < entry.coordinator_epoch:\n",
        f"{_TEST_MARKER_WRITE}::test_marker_that_comes_again_changes_nothing",
    ),
    Mutation(
        "B07", _PRODUCER_ENTRY,
        "        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH\n",
        "        return marker_epoch == MAX_EPOCH\n",
        f"{_TEST_MARKER_WRITE}::test_marker_of_version_2_that_comes_again_changes_nothing",
    ),
    Mutation(
        "B07", _VERIFICATION_STATE,
        "            return transaction_version >= FIRST_STRICT_VERSION and marker_epoch != MAX_EPOCH\n",
        "            return False\n",
        f"{_TEST_ELSEWHERE}::test_marker_of_the_former_transaction_in_version_2_refuses_no_batch",
    ),
    Mutation(
        "B08", _PRODUCERS,
        "        if entry is not None and producer_epoch < entry.producer_epoch:\n"
        "            return ErrorCode.INVALID_PRODUCER_EPOCH\n        if self.has_ongoing",
        "        if self.has_ongoing",
        f"{_TEST_ELSEWHERE}::test_marker_that_fences_is_returned_as_producer_fenced",
    ),
    Mutation(
        "B08", _VERIFICATION_ERRORS,
        "    if error is ErrorCode.PRODUCER_FENCED:\n        return ErrorCode.INVALID_PRODUCER_EPOCH\n",
        "",
        f"{_TEST_VERIFICATION}::test_zombie_is_fenced_before_it_is_verified",
    ),
    Mutation(
        "B09", _PRODUCERS,
        "            if producer_epoch < entry.producer_epoch:\n"
        "                return ErrorCode.INVALID_PRODUCER_EPOCH\n",
        "",
        f"{_LATE}::test_zombie_is_fenced_without_a_request_to_the_coordinator",
    ),
    Mutation(
        "B10", _COORDINATOR,
        "        if now_ms - txn.unknown_since_ms > txn.metadata.timeout_ms:\n",
        "        if now_ms < 0:\n",
        f"{_TEST_COORDINATOR}::test_partitions_of_a_topic_that_does_not_exist_are_refused_for_good_in_the_end",
    ),
    Mutation(
        "B11", _VERIFICATION_STATE,
        "            return transaction_version >= FIRST_STRICT_VERSION and marker_epoch != MAX_EPOCH\n",
        "            return self.adds_partitions\n",
        f"{_TEST_ELSEWHERE}::test_marker_between_verification_and_append_refuses_the_batch",
    ),
    Mutation(
        "B11", "broker/handlers/end_txn.py",
        "client_version=EPOCH_BUMP_VERSION if context.api_version >= _FIRST_WITH_EPOCH_BUMP else 0",
        "client_version=EPOCH_BUMP_VERSION if broker.features.transaction_version == EPOCH_BUMP_VERSION else 0",
        f"{_SCENARIOS_2}::test_client_of_the_newest_version_works_at_every_level",
    ),
    Mutation(
        "B12", _MARKERS,
        "self._pending.get(markers.transactional_id) is markers",
        "markers.transactional_id in self._pending",
        f"{_TEST_MARKERS}::test_response_of_earlier_transaction_does_not_touch_the_present_one",
    ),
    Mutation(
        "B13", _MARKERS,
        "            del self._pending[markers.transactional_id]\n            markers.complete()",
        "            markers.complete()",
        f"{_TEST_MARKERS}::test_response_that_comes_twice_completes_once",
    ),
    Mutation(
        "B14", _MARKERS,
        "        else:\n            self._finish_if_done(markers)\n",
        "",
        f"{_TEST_MARKERS}::test_last_partition_that_turns_out_to_be_deleted_completes",
    ),
    Mutation(
        "B15", _MARKERS,
        "        return partition.topic not in INTERNAL_TOPICS or markers",
        "        return markers",
        f"{_TEST_MARKERS}::test_deleted_topic_needs_no_marker",
    ),
    Mutation(
        "B15", _MARKERS,
        "        if not self._metadata.is_deleted(partition):\n            return False\n",
        "",
        f"{_TEST_MARKERS}::test_partition_that_is_not_known_yet_waits_for_its_marker",
    ),
    Mutation(
        "B15", _IMAGE,
        "self._full_epoch == self.fence.epoch and ",
        "",
        f"{_TEST_IMAGE}::test_partition_is_deleted_only_if_full_update_of_newest_controller_left_it_out",
    ),
    Mutation(
        "B15", "coordinator/controller/active_controller.py",
        "        send_full_metadata(context, state.brokers)\n",
        "",
        f"{_TEST_CONTROL}::test_new_controller_names_every_partition_to_every_broker_before_it_gives_leaderships",
    ),
    Mutation(
        "B16", _MARKERS,
        "MARKER_OUTCOMES.get(error, MarkerOutcome.RETRY)",
        "MARKER_OUTCOMES.get(error, MarkerOutcome.DONE)",
        f"{_TEST_MARKERS}::test_error_code_outside_done_and_fenced_is_retried",
    ),
    Mutation(
        "B17", "broker/transactions/markers.py",
        "        if topic == GROUP_METADATA_TOPIC_NAME:\n",
        "        if not topic:\n",
        f"{_TEST_MARKER_WRITE}::test_offsets_are_materialised_before_the_response",
    ),
    Mutation(
        "B18", _STATE,
        "        case (TransactionState.COMPLETE_COMMIT, True) | (TransactionState.COMPLETE_ABORT, False):\n",
        "        case (TransactionState.COMPLETE_COMMIT, False):\n"
        "            return _fence_and_abort(metadata._replace(state=TransactionState.ONGOING), now_ms, 0, -1)\n"
        "        case (TransactionState.COMPLETE_COMMIT, True) | (TransactionState.COMPLETE_ABORT, False):\n",
        f"{_TEST_STATE}::test_request_in_state",
    ),
    Mutation(
        "B18", _STATE,
        "ErrorCode.INVALID_TXN_STATE if commit else _prepare_and_bump(metadata, False, now_ms, new_producer_id)",
        "ErrorCode.INVALID_TXN_STATE",
        f"{_SCENARIOS_2}::test_abort_of_nothing_returns_a_new_epoch_and_fences_no_producer",
    ),
    Mutation(
        "B19", _STATE,
        "ErrorCode.INVALID_TXN_STATE if commit else _prepare_and_bump(metadata, False,",
        "ErrorCode.PRODUCER_FENCED if commit else _prepare_and_bump(metadata, False,",
        f"{_SCENARIOS_2}::test_commit_of_nothing_is_refused_and_does_no_harm",
    ),
    Mutation(
        "B19", "clients/producer/coordinator_requests.py",
        "        if isinstance(pending.request, EndTxn) and not manager.transaction.is_started:\n",
        "        if False:\n",
        "tests/unit/clients/producer/test_transaction_manager.py"
        "::test_empty_transaction_ends_without_a_request",
    ),
    Mutation(
        "B20", _STATE,
        "        return error\n    if txn.pending is not None:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n"
        "    match metadata.state, commit:\n",
        "        return error\n    match metadata.state, commit:\n",
        f"{_TEST_STATE}::test_request_while_a_transition_is_pending",
    ),
    Mutation(
        "B20", _STATE,
        "    if txn.pending is not None:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n"
        "    metadata = txn.metadata\n    state = metadata.state\n",
        "    metadata = txn.metadata\n    state = metadata.state\n",
        f"{_TEST_TABLES}::test_cell_is_decided_as_the_table_says",
    ),
    Mutation(
        "B21", _STATE_MANAGER,
        "        partition.log.when_replicated(end_offset, partial(self._on_replicated, partition, txn, commit))\n"
        "        return",
        "        self._on_replicated(partition, txn, commit, ErrorCode.NONE)\n        return",
        f"{_TEST_COORDINATOR}::test_transition_is_neither_confirmed_nor_shown_before_it_is_replicated",
    ),
    Mutation(
        "B22", _STATE,
        "            return _fence_and_abort(metadata, now_ms, transaction_version, new_producer_id)\n"
        "        case TransactionState.EMPTY",
        "            return _initialise(metadata, timeout_ms, expected, new_producer_id, now_ms)\n"
        "        case TransactionState.EMPTY",
        f"{_TEST_COORDINATOR}::test_restarted_producer_aborts_what_it_left_open",
    ),
    Mutation(
        "B23", _STATE,
        "LAST_LIVE_EPOCH: Final = MAX_EPOCH - 1",
        "LAST_LIVE_EPOCH: Final = MAX_EPOCH",
        f"{_TEST_STATE}::test_epochs_run_out",
    ),
    Mutation(
        "B23", _STATE,
        "        next_producer_id=new_producer_id if is_exhausted else NO_PRODUCER_ID,\n",
        "        next_producer_id=NO_PRODUCER_ID,\n",
        f"{_SCENARIOS_2}::test_producer_id_is_renewed_after_the_last_epoch",
    ),
    Mutation(
        "B23", _STATE,
        "    is_live = metadata.producer_epoch != MAX_EPOCH  #",
        "    is_live = True  #",
        f"{_TEST_TABLES}::test_cell_is_decided_as_the_table_says",
    ),
    Mutation(
        "B23", _STATE,
        "        if expected.epoch != metadata.last_producer_epoch or epoch > LAST_LIVE_EPOCH:\n",
        "        if expected.epoch != metadata.last_producer_epoch:\n",
        f"{_TEST_TABLES}::test_cell_is_decided_as_the_table_says",
    ),
    Mutation(
        "B24", _PRODUCER_ENTRY,
        "        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH\n",
        "        return self.txn_first_offset is None\n",
        f"{_TEST_PRODUCERS}::test_transaction_of_epoch_32767_can_be_ended",
    ),
    Mutation(
        "B24", _STATE,
        "    if state is TransactionState.ONGOING and not (commit and metadata.producer_epoch == MAX_EPOCH):\n",
        "    if state is TransactionState.ONGOING:\n",
        f"{_UNIT_2}::test_commit_in_the_epoch_that_only_fences_is_refused",
    ),
    Mutation(
        "B25", _LOG_RECORDS,
        "_VALUE_TIMES.pack(metadata.last_update_ms, metadata.start_ms)",
        "_VALUE_TIMES.pack(metadata.last_update_ms, -1)",
        f"{_TEST_TABLES}::test_end_txn_of_a_loaded_coordinator",
    ),
    Mutation(
        "B25", _LOG_RECORDS,
        "    if metadata.next_producer_id != NO_PRODUCER_ID:\n",
        "    if False:\n",
        f"{_SCENARIOS_2}::test_new_producer_id_survives_a_failover",
    ),
    Mutation(
        "B25", _LOG_RECORDS,
        "    if metadata.client_transaction_version:\n",
        "    if False:\n",
        f"{_SCENARIOS_2}::test_new_producer_id_survives_a_failover",
    ),
    Mutation(
        "B25", _STATE,
        "_replace(state=state, previous_producer_id=metadata.producer_id, cause=cause, **changes)",
        "_replace(state=state, cause=cause, **changes)",
        f"{_TEST_TABLES}::test_end_txn_of_a_loaded_coordinator",
    ),
    Mutation(
        "B26", "coordinator/producer_ids.py",
        "_last_reserved(znode) + 1",
        "_last_reserved(znode)",
        "tests/unit/coordinator/test_producer_ids.py::test_producer_id_is_never_given_out_twice",
    ),
    Mutation(
        "B27", _STATE,
        'so nothing has happened."""\n',
        'so nothing has happened."""\n        self.metadata = self.pending or self.metadata\n',
        f"{_TEST_COORDINATOR}::test_fence_that_the_log_refused_bumps_no_epoch",
    ),
    Mutation(
        "B28", _STATE,
        "    if producer.epoch != metadata.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n    return",
        "    if producer.epoch < metadata.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n    return",
        f"{_TEST_STATE}::test_request_in_state",
    ),
    Mutation(
        "B29", _STATE,
        "        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),\n"
        "        last_producer_epoch=NO_PRODUCER_EPOCH,\n",
        "        last_producer_epoch=NO_PRODUCER_EPOCH,\n",
        f"{_TEST_STATE}::test_abort_of_an_open_transaction_bumps_the_epoch_in_its_own_record",
    ),
    Mutation(
        "B29", _STATE,
        "        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),\n"
        "        last_producer_epoch=metadata.producer_epoch,\n",
        "        last_producer_epoch=metadata.producer_epoch,\n",
        f"{_UNIT_2}::test_end_bumps_the_epoch_in_the_record_that_decides_it",
    ),
    Mutation(
        "B30", _STATE_MANAGER,
        "                txn.withdraw()\n                if is_new:\n",
        "                if is_new:\n",
        f"{_TEST_COORDINATOR}::test_record_that_the_log_refused_leaves_nothing_pending",
    ),
    Mutation(
        "B31", _PRODUCERS,
        "        entry.last_active_ms = self._wall_clock()\n        first_offset = entry.txn_first_offset\n",
        "        first_offset = entry.txn_first_offset\n",
        f"{_TEST_PRODUCERS}::test_marker_counts_as_activity",
    ),
    Mutation(
        "B31", _PRODUCERS,
        "        if marker.coordinator_epoch < entry.coordinator_epoch:\n",
        "        if marker.coordinator_epoch < 0:\n",
        f"{_TEST_MARKER_WRITE}::test_older_coordinator_is_fenced",
    ),
    Mutation(
        "B32", _LOG,
        "        self.producer_state.on_log_start(offset)\n",
        "        self.producer_state.clear(offset)\n",
        "tests/unit/broker/handlers/test_delete_records.py::test_live_producer_outlives_its_deleted_records",
    ),
    Mutation(
        "B32", _PRODUCERS,
        "            return self._admit_first(header, origin)\n",
        "            return ErrorCode.UNKNOWN_PRODUCER_ID if header.base_sequence > 0 else _ACCEPT\n",
        f"{_TEST_PRODUCERS}::test_producer_without_state_may_begin_anywhere",
    ),
    Mutation(
        "B33", _SWEEPS,
        "                elif isinstance(decision, TransactionMetadata):\n",
        "                elif False:\n",
        f"{_LATE}::test_partition_added_after_the_end_of_its_transaction_is_decided_by_time_out",
    ),
    Mutation(
        "B33", _PRODUCERS,
        "[each for each in idle if each.txn_first_offset is None]",
        "idle",
        f"{_TEST_PRODUCERS}::test_producer_with_an_open_transaction_does_not_expire",
    ),
    Mutation(
        "B33", _STATE,
        "    if producer.epoch != metadata.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n    return",
        "    return",
        f"{_SCENARIOS_2}::test_late_partition_or_offset_opens_no_transaction",
    ),
    Mutation(
        "B34", _PRODUCER_ENTRY,
        "BATCHES_RETAINED: Final = 5",
        "BATCHES_RETAINED: Final = 4",
        f"{_TEST_PRODUCERS}::test_duplicates_of_the_last_five_batches_are_recognised",
    ),
    Mutation(
        "B34", _PRODUCERS,
        "            if duplicate is not None:\n                return Duplicate(duplicate)\n",
        "",
        f"{_FAILURES}::test_6_broker_failure",
    ),
    Mutation(
        "B34", _PRODUCERS,
        "                    error = self._refused.error_behind(header, self.producer_id_expiration_ms) or error\n",
        "                    pass\n",
        "tests/unit/broker/storage/test_shortages.py::test_batches_behind_one_that_met_a_shortage_are_refused_like_it",
    ),
    Mutation(
        "B113", "broker/storage/producer_state.py",
        "            self._awaited.expect_any()\n", "            pass\n",
        f"{_TEST_EARLY}::test_refusals_of_many_producers_are_awaited_by_the_next_leadership",
    ),
    Mutation(
        "B113", "broker/storage/producer_state.py",
        "        self._awaited.expect(batches)\n",
        "        self._awaited.expect(each for each in batches if each[0] not in self.producers)\n",
        f"{_TEST_EARLY}::test_refused_batch_of_a_producer_is_awaited_although_the_log_knew_it_then",
    ),
    Mutation(
        "B113", "broker/storage/producer_state.py",
        "        self.expect(self._verifications.first_batches())\n", "",
        f"{_TEST_ELSEWHERE}::test_batch_behind_one_that_was_not_verified_waits_for_it_in_the_next_leadership",
    ),
    Mutation(
        "B113", "broker/handlers/produce.py",
        "        if isinstance(partition, LeadingPartition) or partition not in _NOT_LED:\n",
        "        if True:\n",
        f"{_TEST_EARLY}::test_batch_behind_one_that_came_before_the_partition_waits_for_it",
    ),
    Mutation(
        "B113", "broker/replication/replica_manager.py",
        "        log.producer_state.expect(self.early_batches.take(partition.topic_partition, partition.topic_id))\n",
        "",
        f"{_TEST_EARLY}::test_batch_behind_one_that_came_before_the_leadership_waits_for_it",
    ),
    Mutation(
        "B113", "broker/replication/early_batches.py",
        "for key in ((name, index), (topic_id, index)):",
        "for key in ((name, index),):",
        f"{_TEST_EARLY}::test_batch_behind_one_that_came_before_the_partition_waits_for_it",
    ),
    Mutation(
        "B113", "broker/replication/early_batches.py",
        "place = first_of(before.place, place)", "pass",
        f"{_TEST_EARLY}::test_batch_behind_one_that_came_before_the_partition_waits_for_it",
    ),
    Mutation(
        "B113", "broker/storage/awaited_batches.py",
        "first_of(before.place, place)", "place",
        f"{_TEST_EARLY}::test_leadership_of_another_broker_in_between_lets_no_batch_overtake",
    ),
    Mutation(
        "B113", "broker/storage/producer_state.py",
        "self.expect((producer_id, Place(each.producer_epoch, each.base_sequence)) for producer_id, each in refused)",
        "pass",
        f"{_TEST_EARLY}::test_batch_that_the_leader_refused_is_awaited_by_its_next_leadership",
    ),
    Mutation(
        "B113", "broker/storage/awaited_batches.py",
        "epoch == header.producer_epoch and ", "",
        f"{_TEST_EARLY}::test_producer_begins_anew_after_a_batch_that_it_gave_up",
    ),
    Mutation(
        "B115", "broker/peers/cluster_member.py",
        "            brokers.update(active.unreachable.on_probation())",
        "            pass",
        f"{_TEST_PROBATION}::test_broker_on_probation_joins_at_once_when_another_one_is_gone",
    ),
    Mutation(
        "B115", "coordinator/controller/active_controller.py",
        "        state.on_state = self.unreachable.note_states\n",
        "",
        f"{_TEST_PROBATION}::test_broker_on_probation_joins_at_once_when_another_one_is_gone",
    ),
    Mutation(
        "B115", "coordinator/controller/active_controller.py",
        "        state.on_state = self.unreachable.note_states\n",
        "",
        f"{_TEST_PROBATION}::test_broker_on_probation_joins_at_once_when_the_disk_of_another_one_is_full",
    ),
    Mutation(
        "B115", "coordinator/controller/unreachable_brokers.py",
        "        if any(state.is_needed(broker_id, partition) for partition in state.partitions_on(broker_id)):\n",
        "        if False:\n",
        f"{_TEST_PROBATION}::test_broker_whose_link_flaps_while_another_one_is_gone_joins_each_time",
    ),
    Mutation(
        "B115", "coordinator/controller/cluster_state.py",
        "        if broker_id in isr or broker_id not in replicas:\n", "        if broker_id not in replicas:\n",
        f"{_TEST_PROBATION}::test_broker_on_probation_is_not_trusted_where_it_cannot_help",
    ),
    Mutation(
        "B115", "coordinator/controller/unreachable_brokers.py",
        "            self.backoff.end(broker_id, asyncio.get_running_loop().time())\n", "",
        f"{_TEST_PROBATION}::test_broker_that_was_trusted_early_is_replaced_as_soon_as_it_is_silent",
    ),
    Mutation(
        "B115", "coordinator/controller/active_controller.py",
        "            self.unreachable.note_states(*self.context.state.partitions([topic]))\n", "            pass\n",
        f"{_TEST_PROBATION}::test_broker_on_probation_is_trusted_when_the_minimum_is_raised",
    ),
    Mutation(
        "B57", "coordinator/controller/in_sync_minimums.py",
        "    return max([own, *(minimum for minimum in others if minimum is not None)])\n", "    return own\n",
        f"{_TEST_MINIMUMS}::test_controller_with_a_lower_minimum_than_the_leader_remembers_eligible_replicas",
    ),
    Mutation(
        "B57", "coordinator/controller/in_sync_minimums.py",
        "        minimum = int(text)\n", "        minimum = int(text) if text.isdecimal() else 0\n",
        f"{_TEST_MINIMUMS}::test_minimum_is_read_as_brokers_read_it",
    ),
    Mutation(
        "B57", "coordinator/controller/active_controller.py",
        "        if self._minimums.largest(self.context.state.brokers) != before:\n",
        "        if False:\n",
        f"{_TEST_MINIMUMS}::test_broker_that_leaves_takes_its_minimum_along",
    ),
    Mutation(
        "B57", "coordinator/controller/stored_settings.py",
        "        if resource.type is ResourceType.BROKER:\n            self.on_min_isr()\n", "        pass\n",
        f"{_TEST_MINIMUMS}::test_lower_minimum_for_all_brokers_ends_the_eligibility",
    ),
    Mutation(
        "B57", "broker/handlers/config_requests.py",
        "    if resource.type is ResourceType.BROKER and name and broker.features.keeps_eligible:\n", "    if False:\n",
        "tests/unit/broker/handlers/test_config_administration.py"
        "::test_minimum_of_one_broker_is_refused_while_eligible_replicas_are_kept",
    ),
    Mutation(
        "B116", "coordinator/controller/cluster_reading.py",
        "    return not leader_restarted(state, versioned)\n", "    return True\n",
        "tests/simulation/test_cut_links.py"
        "::test_leader_that_lost_power_does_not_lead_again_by_what_the_store_says",
    ),
    Mutation(
        "B114", "coordinator/controller/topic_ids.py",
        "if not topic.states or name in without]", "]",
        f"{_TEST_WITHOUT_ID}::test_controller_that_does_not_know_the_id_of_a_topic_invents_none",
    ),
    Mutation(
        "B114", "coordinator/controller/topic_ids.py",
        " or name in without]", "]",
        f"{_TEST_WITHOUT_ID}::test_isr_of_each_topic_without_id_follows_its_own_replicas",
    ),
    Mutation(
        "B114", "coordinator/controller/alter_partition.py",
        "        return topic.name_beside_id\n", "        pass\n",
        f"{_TEST_WITHOUT_ID}::test_controller_that_does_not_know_the_id_of_a_topic_invents_none",
    ),
    Mutation(
        "B114", "broker/replication/replica_manager.py",
        " or self.own_ids.get(topic_id)", "",
        f"{_TEST_WITHOUT_ID}::test_controller_that_does_not_know_the_id_of_a_topic_invents_none",
    ),
    Mutation(
        "B114", "coordinator/controller/active_controller.py",
        "        await topic_ids.give(context)\n",
        "",
        f"{_TEST_WITHOUT_ID}::test_isr_of_each_topic_without_id_follows_its_own_replicas",
    ),
    Mutation(
        "B114", "coordinator/controller/topic_ids.py",
        ", **self.known()}", "}",
        f"{_TEST_WITHOUT_ID}::test_topic_that_an_old_tool_has_written_again_keeps_its_id_and_its_records",
    ),
    Mutation(
        "B114", "coordinator/controller/topic_ids.py",
        ", version=topic.version)\n", ")\n",
        f"{_TEST_WITHOUT_ID}::test_topic_that_is_written_again_while_it_gets_its_id_is_left_to_the_next_controller",
    ),
    Mutation(
        "B114", "broker/replication/follower_session.py",
        "        if followed.key[0] == ZERO_UUID:  # No", "        if False:  # No",
        "tests/unit/broker/replication/test_follower_session.py"
        "::test_partitions_whose_topics_have_no_id_are_not_fetched_and_can_be_left",
    ),
    Mutation(
        "B34", _REFUSED_BATCHES,
        "            self._dropped_ms = dropped.at_ms\n",
        "",
        "tests/unit/broker/storage/test_shortages.py::TestMoreRefusedProducersThanAreRemembered",
    ),
    Mutation(
        "B34", _REFUSED_BATCHES,
        "            first_sequence = min(first_sequence, before.base_sequence)\n",
        "            pass\n",
        "tests/unit/broker/storage/test_shortages.py::test_second_refused_batch_is_not_appended_before_the_first",
    ),
    Mutation(
        "B34", _REFUSED_BATCHES,
        "            first_sequence = 0\n",
        "            pass\n",
        "tests/unit/broker/storage/test_shortages.py::TestMoreRefusedProducersThanAreRemembered",
    ),
    Mutation(
        "B34", _REFUSED_BATCHES,
        "before.producer_epoch > header.producer_epoch", "False",
        "tests/unit/broker/storage/test_shortages.py::test_refused_batch_of_an_older_epoch_replaces_no_newer_refusal",
    ),
    Mutation(
        "B35", _PRODUCE,
        "    return _refused(*_collect(request), ErrorCode.KAFKA_STORAGE_ERROR)\n",
        "    return _refused(*_collect(request), error)\n",
        f"{_TEST_PRODUCE}::test_unexpected_exception_is_a_storage_error",
    ),
    Mutation(
        "B36", "broker/storage/local_log.py",
        "        self.snapshots.write_frozen(self.flush_state.written)\n", "",
        f"{_TEST_FAILURES}::test_snapshot_is_on_the_medium_before_the_recovery_point_passes_it",
    ),
    Mutation(
        "B36", "broker/storage/producer_snapshots.py",
        "            written(path)\n", "",
        f"{_TEST_FAILURES}::test_snapshot_is_on_the_medium_before_the_recovery_point_passes_it",
    ),
    Mutation(
        "B36", "broker/storage/producer_state.py",
        "            frozen.keep(producer_id)\n",
        "            pass\n",
        "tests/unit/broker/storage/test_frozen_producers.py"
        "::test_snapshot_is_that_of_its_offset_whatever_happens_before_it_is_written",
    ),
    Mutation(
        "B37", _LOG,
        "        if cut.concerns_producers:\n",
        "        if False:\n",
        "tests/unit/broker/storage/test_truncation.py::test_producer_goes_on_from_what_is_left",
    ),
    Mutation(
        "B38", _READER,
        "            upper_offset = reply.last_stable_offset if self._is_committed else reply.high_watermark\n",
        "            upper_offset = reply.high_watermark\n",
        f"{_TEST_FETCH}::test_committed_records_and_no_others_are_read_while_others_are_written",
    ),
    Mutation(
        "B38", "broker/storage/local_log.py",
        "        upper_offset = min(cold.upper_offset, end_offset)\n",
        "        upper_offset = end_offset\n",
        f"{_TEST_FETCH}::test_cold_read_ends_at_the_bound_of_its_isolation_level",
    ),
    Mutation(
        "B39", _PARTITION,
        "        return log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset\n",
        "        return log.high_watermark if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset\n",
        f"{_TEST_FETCH}::test_waiting_read_committed_fetch_counts_bytes_below_the_last_stable_offset",
    ),
    Mutation(
        "B40", "broker/storage/local_log.py",
        "self.flush_shortage = None\n        except OSError as error:\n            self.note_error(error)\n",
        "self.flush_shortage = None\n        except OSError as error:\n            pass\n",
        f"{_TEST_FAILURES}::test_index_that_cannot_be_written_duplicates_no_offset",
    ),
    Mutation(
        "B84", "coordinator/controller/cluster_state.py",
        "self.brokers.keys() - self.unreachable - self.shutting_down - self.full\n",
        "self.brokers.keys() - self.unreachable - self.shutting_down\n",
        f"{_FULL_DISK}::test_full_disk_of_one_broker_stops_no_writes",
    ),
    Mutation(
        "B84", "coordinator/controller/cluster_state.py",
        "        return reliable.difference(self.unwritable.of(partition))\n",
        "        return reliable\n",
        f"{_OPEN_FILES}::test_new_partition_whose_log_cannot_be_opened_by_its_leader_is_led_by_another_replica",
    ),
    Mutation(
        "B84", "broker/replication/replica_control.py",
        "        elif topic_partition in space.files.refusing and ",
        "        elif False and ",
        f"{_OPEN_FILES}"
        "::test_log_that_cannot_be_continued_for_want_of_descriptors_is_led_elsewhere_until_it_can",
    ),
    Mutation(
        "B84", "broker/storage/open_files.py",
        "_ENOUGH_FILES if self.refusing else 1",
        "1",
        "tests/unit/broker/storage/test_shortages.py::TestOpenFiles",
    ),
    Mutation(
        "B84", "coordinator/controller/full_disks.py",
        "        self._changed.update(changes.unwritable, changes.writable)\n",
        "        self._changed = changes.unwritable | changes.writable\n",
        "tests/unit/coordinator/controller/test_full_disks.py"
        "::test_replicas_that_several_responses_report_before_the_election_all_get_other_leaders",
    ),
    Mutation(
        "B84", "coordinator/controller/full_disks.py",
        "    if ErrorCode.KAFKA_STORAGE_ERROR in codes:\n",
        "    if codes == {ErrorCode.KAFKA_STORAGE_ERROR}:\n",
        "tests/unit/coordinator/controller/test_full_disks.py"
        "::test_full_disk_is_noted_whatever_other_replicas_respond",
    ),
    Mutation(
        "B84", "broker/replication/replica_host.py",
        "return is_member and not self.is_offline(topic_partition, broker_id)\n",
        "return is_member\n",
        f"{_FULL_DISK}::test_full_disk_of_one_broker_stops_no_writes",
    ),
    Mutation(
        "B41", "broker/storage/flush_state.py",
        '        raise OSError(errno.EIO, f"fsync: {error}") from error\n',
        "        raise\n",
        "tests/unit/broker/storage/test_shortages.py::test_sync_that_fails_for_want_of_space_fails_the_log",
    ),
    Mutation(
        "B41", _LOG,
        "        if self.failed:\n            return ErrorCode.KAFKA_STORAGE_ERROR\n        has_producer",
        "        has_producer",
        f"{_TEST_FAILURES}::test_log_after_an_error_acknowledges_nothing",
    ),
    Mutation(
        "B42", _COMPACTION,
        "        if had_data:\n",
        "        if False:\n",
        f"{_TEST_CLEANER}::test_markers_stay_until_their_data_is_gone_for_a_pass",
    ),
    Mutation(
        "B43", _COMPACTION,
        "            return header.last_offset == last_data_offset\n",
        "            return False\n",
        f"{_TEST_CLEANER}::test_last_sequence_of_a_producer_is_never_lost",
    ),
    Mutation(
        "B44", _COMPACTION,
        "        if header.is_control:\n            return (yield from self._retain_marker(whole, header))\n",
        "",
        f"{_TEST_CLEANER}::test_markers_stay_until_their_data_is_gone_for_a_pass",
    ),
    Mutation(
        "B45", "broker/storage/cleanable.py",
        "min(log.high_watermark, log.last_stable_offset, log.recovery_point)",
        "log.recovery_point",
        f"{_TEST_CLEANER}::test_undecided_or_unflushed_records_are_not_cleaned",
    ),
    Mutation(
        "B46", _CLEANER,
        "            and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET\n",
        "",
        f"{_TEST_CLEANER}::test_groups_fit_a_segment",
    ),
    Mutation(
        "B91", _COMPACTION,
        "header.has_delete_horizon and header.base_timestamp <= self.now_ms",
        "header.max_timestamp + self.delete_retention_ms < self.now_ms",
        "tests/unit/broker/storage/test_cleaner_histories.py::test_compaction_of_any_history_keeps_what_readers_must_find",
    ),
    Mutation(
        "B91", _LOG,
        "        self.cleaned_offset = min(self.cleaned_offset, base_offset)\n",
        "",
        f"{_TEST_MANAGER}::test_truncation_lowers_the_cleaned_offset_on_disk_first",
    ),
    Mutation(
        "B91", "broker/storage/recovery.py",
        "        if self.noted.cleaned_offset <= end_offset:\n",
        "        if True:\n",
        f"{_TEST_MANAGER}::test_checkpointed_cleaned_offset_beyond_the_log_is_forgotten_at_once",
    ),
    Mutation(
        "B92", _CLEANER,
        "        if not crc_is_valid(buffer, position, header):\n",
        "        if False:\n",
        f"{_TEST_CLEANER}::test_corrupt_batch_makes_a_log_uncleanable_and_never_gets_a_valid_crc",
    ),
    Mutation(
        "B93", _COMPACTION,
        "        if header.next_offset == self.segment_end_offset:\n            return True\n",
        "",
        f"{_TEST_CLEANER}::test_written_segment_ends_with_a_batch_so_that_recovery_finds_no_gap",
    ),
    Mutation(
        "B93", "broker/storage/recovery.py",
        "base_offset <= self.noted.cleaned_offset or self._may_have_unnoted_gaps()",
        "self._may_have_unnoted_gaps()",
        f"{_TEST_CLEANER}::test_gap_that_compaction_left_between_segments_is_no_end_for_recovery",
    ),
    Mutation(
        "B93", "broker/storage/recovery.py",
        "base_offset <= self.noted.cleaned_offset or self._may_have_unnoted_gaps()",
        "base_offset <= self.noted.cleaned_offset",
        f"{_TEST_CLEANER}::test_gap_of_a_killed_cleaning_is_no_end_for_recovery_while_power_held",
    ),
    Mutation(
        "B93", "broker/storage/recovery.py",
        "        return may_compact and self.noted.power_held\n",
        "        return may_compact\n",
        f"{_TEST_MANAGER}::test_gap_of_a_compacted_log_is_accepted_unless_the_machine_lost_power",
    ),
    Mutation(
        "B47", "broker/storage/time_index.py",
        "        if timestamp <= last.timestamp or offset < last.offset:\n            return\n",
        "",
        "tests/unit/broker/storage/test_indexes.py::test_time_index_stays_monotone_whatever_is_offered",
    ),
    Mutation(
        "B48", _READER,
        "        elif offset < log.log_start_offset:\n            fetched = ErrorCode.OFFSET_OUT_OF_RANGE\n",
        "",
        f"{_TEST_FETCH}::test_cold_read_of_what_was_deleted_meanwhile_is_out_of_range",
    ),
    Mutation(
        "B48", "broker/storage/unstable_transactions.py",
        "            if producer_id != completed.producer_id:\n                return first_offset\n",
        "            pass\n",
        f"{_TEST_LOG}::test_aborted_transactions_of_a_range",
    ),
    Mutation(
        "B49", _FOLLOWED,
        "            end = _common_end(self.log, reply.diverging_epoch)\n",
        "            end = self.log.high_watermark\n",
        f"{_TEST_FOLLOWED}::test_rounds_of_divergence_end_at_the_common_beginning",
    ),
    Mutation(
        "B49", _FOLLOWED,
        "        last_fetched_epoch = NO_EPOCH if latest is None else latest\n",
        "        last_fetched_epoch = NO_EPOCH\n",
        f"{_HISTORIES}::test_histories_lose_nothing_acknowledged_and_the_replicas_agree",
    ),
    Mutation(
        "B50", _FOLLOWED,
        "    return min(mine, leaders.end_offset, log.log_end_offset)\n",
        "    return min(leaders.end_offset, log.log_end_offset)\n",
        f"{_TEST_FOLLOWED}::test_diverging_log_is_truncated_where_both_agree",
    ),
    Mutation(
        "B51", _PARTITION,
        "        if current_leader_epoch < self.leader_epoch:\n            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
        f"{_TEST_PARTITION}::test_clients_leader_epoch_is_compared",
    ),
    Mutation(
        "B52", _ISR,
        "        needed = max(high_watermark, epoch_start_offset)\n",
        "        needed = high_watermark\n",
        f"{_TEST_ISR}::test_joining_follower_has_everything_replicated_and_the_epochs_start",
    ),
    Mutation(
        "B53", _PARTITION,
        "            log.assign_epoch(state.leader_epoch)\n",
        "            pass\n",
        f"{_TEST_PARTITION}::test_leader_epoch_is_stamped_and_remembered",
    ),
    Mutation(
        "B54", _LOG,
        "        self.epochs.truncate_from_end(offset)\n        self.snapshots",
        "        self.snapshots",
        "tests/unit/broker/storage/test_truncation.py::test_epochs_of_the_lost_end_are_forgotten",
    ),
    Mutation(
        "B55", _LOG,
        "        self.update_high_watermark(min(self.high_watermark, offset))\n",
        "",
        "tests/unit/broker/storage/test_truncation.py::test_watermarks_are_never_beyond_the_end",
    ),
    Mutation(
        "B55", "broker/replication/following_partition.py",
        "        high_watermark = min(high_watermark, log.log_end_offset)\n        if",
        "        if",
        f"{_TEST_FOLLOWED}::test_high_watermark_stays_within_the_log_and_does_not_go_back",
    ),
    Mutation(
        "B56", _LEADING,
        "        if broker_epoch != follower.broker_epoch and follower.is_stale(broker_epoch):\n"
        "            return ErrorCode.NOT_LEADER_OR_FOLLOWER\n",
        "",
        f"{_TEST_PARTITION}::test_fetch_of_a_former_incarnation_is_refused_and_changes_nothing",
    ),
    Mutation(
        "B56", _PROGRESS,
        " else self.followers[broker].broker_epoch\n",
        " else -1\n",
        f"{_TEST_REPLICATION}::test_restarted_follower_does_not_enter_the_isr_by_its_former_incarnation",
    ),
    Mutation(
        "B57", _LEADING,
        "            if progress.in_sync.is_under_min_isr(log.config.min_insync_replicas):\n                return\n",
        "",
        f"{_TEST_PARTITION}::test_high_watermark_waits_below_the_minimum",
    ),
    Mutation(
        "B56", "broker/replication/fetch_session.py",
        "            session.follower_registered(replica_epoch(request))\n",
        "            session.replica_epoch = replica_epoch(request)\n",
        "tests/unit/broker/replication/test_fetch_session.py"
        "::test_follower_that_registered_again_has_every_partition_dirty",
    ),
    Mutation(
        "B57", "coordinator/controller/reassignment.py",
        "    if kept == members or len(kept) >= min(min_isr, len(assignment.replicas)):\n",
        "    if True:\n",
        "tests/simulation/test_eligible_leaders.py"
        "::test_cancelled_reassignment_drops_no_replica_that_the_minimum_needs",
    ),
    Mutation(
        "B57", "coordinator/controller/cluster_state.py",
        "if self.brokers[broker_id].epoch <= state.mzxid}",
        "}",
        "tests/unit/coordinator/controller/test_cluster_state.py"
        "::test_broker_registered_since_state_was_written_is_not_usable",
    ),
    Mutation(
        "B57", "coordinator/controller/cluster_state.py",
        "        return usable if unbroken.isdisjoint(state.state.isr) else unbroken\n",
        "        return unbroken\n",
        "tests/unit/coordinator/controller/test_cluster_state.py"
        "::test_broker_registered_since_state_was_written_is_not_usable",
    ),
    Mutation(
        "B59", "broker/replication/isr_changes.py",
        "            elif not proposal.withdrawn:\n",
        "            else:\n",
        "tests/unit/broker/replication/test_isr_changes.py::test_withdrawn_proposal_is_neither_sent_nor_decided",
    ),
    Mutation(
        "B59", _PROGRESS,
        " or decision.leader_epoch != self.leader_epoch or decision.partition_epoch < self.partition_epoch:\n",
        ":\n",
        f"{_TEST_PARTITION}::test_decision_about_an_older_state_changes_nothing",
    ),
    Mutation(
        "B60", _REPLICAS,
        "        if state.leader_epoch > partition.leader_epoch + 1 and",
        "        if False and",
        f"{_TEST_REPLICATION}::test_leader_that_missed_an_epoch_forgets_how_far_its_followers_were",
    ),
    Mutation(
        "B60", _READER,
        "        is_in_range = ",
        "        if self._notes_follower:\n"
        "            end, start = position.fetch_offset, position.log_start_offset\n"
        "            role.follower_fetched(\n"
        "                self._params.replica_id, end=end, log_start_offset=start, broker_epoch=-1, knows_epoch=True)\n"
        "        is_in_range = ",
        f"{_TEST_FOLLOWER}::test_follower_fetch_that_diverged_acknowledges_nothing",
    ),
    Mutation(
        "B60", _LEADING,
        "progress.replicated_end(end)",
        "end",
        f"{_TEST_PARTITION}::test_high_watermark_is_what_all_in_sync_replicas_have",
    ),
    Mutation(
        "B56", _ISR_CHANGES,
        "    return epoch == broker.epoch or (epoch == UNKNOWN_EPOCH and not cluster.keeps_eligible())\n",
        "    return True\n",
        f"{_TEST_ISR_CHANGES}::TestDecision",
    ),
    Mutation(
        "B56", _ISR_CHANGES,
        " and epoch in (UNKNOWN_EPOCH, broker.epoch) and broker_id not in broken\n",
        " and broker_id not in broken\n",
        f"{_TEST_ISR_CHANGES}::TestDecision",
    ),
    Mutation(
        "B59", _ISR_CHANGES,
        "data=znodes.encode_partition_state(state), version=known.version\n",
        "data=znodes.encode_partition_state(state)\n",
        f"{_TEST_ISR_CHANGES}::TestRequest",
    ),
    Mutation(
        "B62", "coordinator/controller/controller_context.py",
        "        check = Check(path=paths.CONTROLLER_EPOCH, version=self._epoch_version)\n",
        "        check = Check(path=paths.CONTROLLER_EPOCH, version=-1)\n",
        f"{_TEST_CONTROLLER}::TestControllerEpoch",
    ),
    Mutation(
        "B62", "coordinator/controller/controller_election.py",
        "data=data, version=znode.stat.version)\n",
        "data=data)\n",
        f"{_TEST_CONTROLLER}::TestControllerEpoch",
    ),
    Mutation(
        "B63", "broker/handlers/control_plane.py",
        "    if not error and broker_epoch != UNKNOWN_EPOCH and broker_epoch < broker.controller.broker_epoch:\n",
        "    if False:\n",
        "tests/unit/broker/handlers/test_control_plane.py::test_control_request_for_an_earlier_incarnation_is_stale_broker_epoch",
    ),
    Mutation(
        "B63", "coordinator/controller/alter_partition.py",
        "    if broker is None or broker.epoch != request.broker_epoch:\n",
        "    if broker is None:\n",
        f"{_TEST_ISR_CHANGES}::TestRequest",
    ),
    Mutation(
        "B64", "broker/peers/cluster_member.py",
        "await await_free_id(session, self._broker_id, self._session_seconds * _EXPIRY_ALLOWANCE, self._is_alive)\n",
        "return\n",
        f"{_TEST_CLUSTER}::TestMembership",
    ),
    Mutation(
        "B63", "broker/replication/replica_control.py",
        "        if log is not None and is_of_another_topic(log.topic_id, topic_id):\n",
        "        if False:\n",
        f"{_TEST_REPLICA_MANAGER}::test_stop_replica_of_another_topic_id_leaves_the_log_alone",
    ),
    Mutation(
        "B63", "coordinator/controller/controller_fence.py",
        "        if epoch < self.epoch or NO_SEQUENCE < sequence < self.sequence:\n",
        "        if epoch < self.epoch:\n",
        "tests/simulation/test_control_requests.py::test_repeated_control_requests_of_the_past_change_nothing",
    ),
    Mutation(
        "B65", "coordinator/controller/controller_context.py",
        "        if not self.is_active:\n",
        "        if False:\n",
        "tests/unit/coordinator/controller/test_controller_context.py::test_ended_context_neither_writes_nor_reads_nor_sends",
    ),
    Mutation(
        "B65", "coordinator/controller/control_channel.py",
        "        if self._timer is not None:\n            self._timer.cancel()\n",
        "",
        "tests/unit/coordinator/controller/test_control_channel.py::test_closed_channel_repeats_nothing",
    ),
    Mutation(
        "B66", "coordinator/controller/controller.py",
        "                self.queue.cluster.clear_events()  # To join is to read everything.\n"
        "                self._put_join()\n",
        "                pass\n",
        f"{_TEST_CLUSTER}::TestMembership",
    ),
    Mutation(
        "B67", "coordinator/controller/rejoining.py",
        "            self._timer = asyncio.get_running_loop().call_later(delay, self._try)\n",
        "            pass\n",
        f"{_TEST_CLUSTER}::TestMembership",
    ),
    Mutation(
        "B68", _GROUP,
        "        self.deadlines.await_syncs(self.roster.ids(), self.roster.rebalance_timeout_ms(), at)\n",
        "",
        f"{_TEST_GROUP}::test_leader_that_heartbeats_but_never_syncs_is_removed",
    ),
    Mutation(
        "B68", _GROUP,
        "            self.deadlines.await_joins(max(self.roster.rebalance_timeout_ms(), MIN_JOIN_RETRY_MS), at)\n",
        "            pass\n",
        f"{_TEST_GROUP}::test_rebalance_in_which_no_member_rejoined_is_retried",
    ),
    Mutation(
        "B69", _OFFSET_REQUESTS,
        "        if partition.topic in subscribed or ",
        "        if ",
        f"{_TEST_OFFSET_REQUESTS}::test_offsets_that_are_subscribed_to_do_not_expire",
    ),
    Mutation(
        "B70", _OFFSETS,
        "        if offset <= known.offset:\n            return known.leader_epoch\n",
        "        if offset <= known.offset:\n            return NO_PARTITION_LEADER_EPOCH\n",
        f"{_TEST_OFFSETS}::test_commit_without_an_epoch_does_not_erase_the_known_one",
    ),
    Mutation(
        "B71", _OFFSETS,
        "                self._close(producer_id, group_id, partition)\n",
        "",
        f"{_LATE}::test_transaction_of_a_dead_producer_ends_in_bounded_time",
    ),
    Mutation(
        "B71", _OFFSET_REQUESTS,
        "unstable = shard.offsets.unstable(group_id) if require_stable else ()\n",
        "unstable = ()\n",
        f"{_TEST_OFFSET_REQUESTS}::test_positions_that_a_transaction_may_change_are_unstable",
    ),
    Mutation(
        "B72", _OFFSETS,
        "                if commit:\n                    self._materialise(group_id, partition, stored)\n",
        "                self._materialise(group_id, partition, stored)\n",
        f"{_TEST_OFFSETS}::test_abort_leaves_the_position_of_before_the_transaction",
    ),
    Mutation(
        "B73", "coordinator/group/roster.py",
        "            del self.static_ids[member.group_instance_id]\n",
        "            pass\n",
        f"{_TEST_GROUP}::test_member_that_changes_its_instance_id_leaves_no_trace_of_the_old_one",
    ),
    Mutation(
        "B74", "coordinator/group/membership.py",
        "    unchanged = member.protocols == request.protocols\n",
        "    unchanged = True\n",
        f"{_TEST_GROUP}::test_another_subscription_starts_another_generation",
    ),
    Mutation(
        "B75", "protocol/records/control_records.py",
        "ControlRecordType.COMMIT if commit else ControlRecordType.ABORT",
        "ControlRecordType.ABORT if commit else ControlRecordType.COMMIT",
        "tests/unit/protocol/records/test_client_batches.py::test_clients_see_our_markers",
    ),
    Mutation(
        "B76", _FRAMES,
        "        whole = memoryview(bytearray(scratch[:position]))\n",
        "        whole = scratch\n",
        f"{_TEST_FRAMES}::test_frame_does_not_share_the_scratch_buffer",
    ),
    Mutation(
        "B77", _FRAMES,
        "bytearray(min(size, max(self._first_buffer, len(first))))",
        "bytearray(size)",
        f"{_TEST_FRAMES}::test_frame_buffer_grows_with_received_bytes",
    ),
    Mutation(
        "B77", "broker/network/response_memory.py",
        "return self._read >= TURN_BYTES", "return False",
        "tests/unit/broker/handlers/test_fetch_turns.py::"
        "test_append_that_wakes_many_fetches_has_them_read_over_several_turns",
    ),
    Mutation(
        "B77", _CONNECTION,
        "        if frames and allowed > share.left:\n", "        if False:\n",
        "tests/unit/broker/network/test_connection_bounds.py::"
        "test_pipelined_requests_of_many_connections_begin_in_slices_of_all_of_them",
    ),
    Mutation(
        "B77", "broker/network/response_memory.py",
        "self._read += size if size > LEAST_READ_BYTES else LEAST_READ_BYTES", "self._read += size",
        "tests/unit/broker/handlers/test_fetch_turns.py::"
        "test_small_append_that_wakes_a_thousand_fetches_has_them_read_over_several_turns",
    ),
    Mutation(
        "B77", "broker/replication/delayed_fetch.py",
        "self._client.large_left_since = None\n        self._wake()",
        "self._client.large_left_since = None\n        self._read_again()",
        "tests/unit/broker/handlers/test_fetch_turns.py::"
        "test_fetches_whose_wait_for_room_ends_at_the_same_time_read_over_several_turns",
    ),
    Mutation(
        "B77", "broker/replication/delayed_fetch.py",
        "        if not client.is_replica_fetcher and memory.is_full:\n",
        "        if False:\n",
        "tests/unit/broker/handlers/test_fetch_room.py::test_large_batch_waits_for_room_and_comes_whole",
    ),
    Mutation(
        "B77", "broker/replication/follower_connections.py",
        "    return len(places) < _MOST\n", "    return True\n",
        "tests/unit/broker/handlers/test_fetch_room.py::test_few_connections_of_each_follower_need_not_wait",
    ),
    Mutation(
        "B77", "broker/replication/follower_connections.py",
        "    return UNKNOWN_EPOCH in (named_epoch, registered_epoch) or named_epoch == registered_epoch\n",
        "    return True\n",
        "tests/unit/broker/handlers/test_fetch_room.py::"
        "test_connection_with_another_epoch_than_the_registered_one_waits_as_a_consumer",
    ),
    Mutation(
        "B77", "broker/replication/fetch_reader.py",
        "                attempt.excess = max(0, min(available, log.config.max_message_bytes) - size)\n",
        "                pass\n",
        "tests/unit/broker/handlers/test_fetch_room.py::"
        "test_cold_first_batch_counts_in_full_while_it_is_read_and_until_it_is_handed_over",
    ),
    Mutation(
        "B34", _REFUSED_BATCHES,
        "        if refusal is not None and refusal.producer_epoch <= header.producer_epoch:\n",
        "        if refusal is not None:\n",
        "tests/unit/broker/storage/test_shortages.py::"
        "test_appended_batch_of_an_older_epoch_removes_no_newer_refusal",
    ),
    Mutation(
        "B77", "broker/network/response_memory.py",
        "            return self._newcomers.popitem()[0]\n",
        "            first = next(iter(self._newcomers)); del self._newcomers[first]; return first\n",
        "tests/unit/broker/network/test_response_memory.py::"
        "test_newcomer_does_not_wait_behind_a_thousand_that_never_read",
    ),
    Mutation(
        "B77", "protocol/decoder_source.py",
        "        self.line(f\"if e < 0: raise too_many_elements({path!r})\")\n",
        "",
        "tests/unit/protocol/test_element_limits.py::test_elements_of_all_arrays_are_counted_together",
    ),
    Mutation(
        "B77", _CONNECTION,
        "while frames and left > 0 and", "while frames and",
        f"{_TEST_BOUNDS}::test_pipelined_requests_of_one_connection_begin_in_slices",
    ),
    Mutation(
        "B77", _CONNECTION,
        "            or (self._resting and len(self._frames) > 0)\n", "",
        f"{_TEST_BOUNDS}::test_frames_behind_a_spent_slice_stay_with_the_sender",
    ),
    Mutation(
        "B77", _CONNECTION,
        "return len(self._slots) >= (_MOST_REPLICA_FETCHES if self.info.is_replica_fetcher else 1)", "return False",
        f"{_TEST_BOUNDS}::test_fetches_behind_a_long_poll_begin_after_its_response",
    ),
    Mutation(
        "B77", _CONNECTION,
        "return len(self._slots) >= (_MOST_REPLICA_FETCHES if self.info.is_replica_fetcher else 1)",
        "return not self.info.is_replica_fetcher",
        f"{_TEST_BOUNDS}::test_follower_has_one_fetch_that_overtakes_another_and_no_more",
    ),
    Mutation(
        "B77", "broker/replication/fetch_session.py",
        "max_bytes if max_bytes > 0 else 0", "max_bytes",
        "tests/unit/broker/handlers/test_fetch_room.py::test_negative_sizes_count_as_none_at_all",
    ),
    Mutation(
        "B77", "broker/replication/fetch_reader.py",
        "is_first = not (attempt.size or attempt.cold)", "is_first = attempt.size == 0",
        "tests/unit/broker/handlers/test_fetch_room.py::test_negative_sizes_count_as_none_at_all",
    ),
    Mutation(
        "B77", _FRAMES,
        "            if not 0 <= size <= self.max_size:\n",
        "            if size < 0:\n",
        f"{_TEST_CONNECTION}::test_frame_with_bad_size_is_refused_before_it_is_received",
    ),
    Mutation(
        "B77", _HEARTBEATS,
        "        \"\"\"Close the connection of a client that does not read.\"\"\"\n        self._transport.abort()\n",
        "        \"\"\"Close the connection of a client that does not read.\"\"\"\n",
        f"{_TEST_HEARTBEATS}::test_adopted_connection_whose_responses_are_not_read_is_closed",
    ),
    Mutation(
        "B77", _HEARTBEATS,
        "        if self._transport.is_closing() or len(", "        if len(",
        f"{_TEST_HEARTBEATS}::test_adopted_connection_whose_responses_are_not_read_is_closed",
    ),
    Mutation(
        "B77", _HEARTBEATS,
        "        for _ in range(_MOST_AT_ONCE):\n", "        while True:\n",
        f"{_TEST_HEARTBEATS}::test_ten_thousand_heartbeats_at_once_close_the_connection",
    ),
    Mutation(
        "B77", _HEARTBEATS,
        "        if self._connections >= MOST_CONNECTIONS:\n", "        if False:\n",
        f"{_TEST_HEARTBEATS}::test_adopted_connections_are_bounded_and_make_room_when_they_end",
    ),
    Mutation(
        "B78", _SOCKET_SERVER,
        "        except TimeoutError:\n            for connection in list(self._connections):\n"
        "                connection.abort()\n",
        "        except TimeoutError:\n            pass\n",
        f"{_TEST_SOCKET_SERVER}::test_stop_does_not_wait_for_a_client_that_never_reads",
    ),
    Mutation(
        "B79", "broker/storage/batch_scan.py",
        "        if base_offset + last_offset_delta >= offset:\n",
        "        if base_offset >= offset:\n",
        f"{_TEST_LOG}::test_read_begins_with_the_batch_that_contains_the_offset",
    ),
    Mutation(
        "B80", "broker/handlers/refused_batch.py",
        "            partition.current_leader = LeaderIdAndEpoch(",
        "            LeaderIdAndEpoch(",
        f"{_TEST_PRODUCE}::test_lost_leadership_is_returned_with_the_new_leader",
    ),
    Mutation(
        "B80", "broker/handlers/refused_batch.py",
        "                endpoints[hint.leader_id] = NodeEndpoint(",
        "                NodeEndpoint(",
        f"{_TEST_REPLICAS}::TestLostLeaderships",
    ),
    Mutation(
        "B80", "broker/handlers/fetch.py",
        "    reply.current_leader = LeaderIdAndEpoch(",
        "    LeaderIdAndEpoch(",
        f"{_TEST_REPLICAS}::TestLostLeaderships",
    ),
    Mutation(
        "B81", _LEADING,
        "self.log.high_watermark >= self.progress.epoch_start_offset\n",
        "self.log.high_watermark >= 0\n",
        "tests/unit/broker/handlers/test_list_offsets.py::test_latest_offset_right_after_an_election_is_not_available",
    ),
    Mutation(
        "B82", _ISR,
        "        return self.isr if self.proposed is None else self.isr | self.proposed\n",
        "        return self.isr\n",
        f"{_TEST_PARTITION}::test_high_watermark_waits_for_a_proposed_follower",
    ),
    Mutation(
        "B82", _ISR,
        "        return self.isr if self.proposed is None else self.isr | self.proposed\n",
        "        return self.isr if self.proposed is None else self.proposed\n",
        f"{_TEST_PARTITION}::test_removal_does_not_count_before_it_is_decided",
    ),
    Mutation(
        "B83", "coordinator/log_loading.py",
        "        elif log.high_watermark < offset:\n"
        "            if await replicated(log, offset) is not ErrorCode.NONE:\n"
        "                return False\n",
        "",
        f"{_TEST_STATE_MANAGER}::test_loaded_partition_serves_nothing_before_everything_read_is_replicated",
    ),
    Mutation(
        "B84", "broker/replication/replica_manager.py",
        "            self._resigned(partition)\n        self.events.on_storage_failure(topic_partition)\n",
        "            self._resigned(partition)\n",
        "tests/unit/broker/replication/test_replica_manager.py::test_failed_log_is_out_of_service_and_reported_once",
    ),
    Mutation(
        "B85", _CONNECTION,
        "            self._blocked = True\n",
        "",
        f"{_TEST_CONNECTION}::test_five_produces_of_which_the_first_waits_are_appended_in_order",
    ),
    Mutation(
        "B85", _VERIFICATION_STATE,
        "        if self.adds_partitions and header.base_sequence != 0 and not follows_batches:\n",
        "        if False:\n",
        f"{_TEST_VERSION_2}::test_transaction_begins_with_sequence_zero",
    ),
    Mutation(
        "B85", _VERIFICATION_STATE,
        "        if base_sequence < self.lowest_sequence:\n",
        "        if base_sequence < 0:\n",
        f"{_TEST_PRODUCERS}::test_batch_does_not_slip_in_before_one_that_was_refused_undecided",
    ),
    Mutation(
        "B90", _ISR,
        "max(self.effective_min_isr(min_insync_replicas), 2)",
        "2",
        f"{_TEST_PARTITION}::test_silence_leaves_the_minimum_in_sync",
    ),
    Mutation(
        "B90", _ISR,
        "max(self.effective_min_isr(min_insync_replicas), 2)",
        "self.effective_min_isr(min_insync_replicas)",
        f"{_TEST_ISR}::test_silent_member_leaves_if_enough_stay",
    ),
    Mutation(
        "B90", "broker/replication/follower_contacts.py",
        "if self._limit_ms == WITHOUT_LIMIT or (last_ms is not None and now_ms - last_ms > expected_ms + _LATE_MS):\n",
        "if self._limit_ms == WITHOUT_LIMIT:\n",
        "tests/unit/broker/replication/test_follower_contacts.py::test_check_that_comes_late_changes_nothing",
    ),
    Mutation(
        "B90", _PROGRESS,
        "                self._host.contacts.expect(broker, now_ms)\n",
        "                pass\n",
        f"{_TEST_PARTITION}::test_followers_are_expected_after_an_election",
    ),
    Mutation(
        "B94", "coordinator/controller/controller_loss.py",
        "    return 2 * lost > counted\n",
        "    return True\n",
        _TEST_CUT_LINKS,
    ),
    Mutation(
        "B94", "broker/peers/controller_link.py",
        "                await self._read_store()\n",
        "                pass\n",
        _TEST_CUT_LINKS,
    ),
    Mutation(
        "B94", "coordinator/controller/unreachable_brokers.py",
        "        if not self._context.is_active:  #",
        "        if False:  #",
        "tests/simulation/test_cut_links.py"
        "::test_broker_is_trusted_again_although_the_controllers_session_was_in_doubt_at_that_moment",
    ),
    Mutation(
        "B94", "coordinator/controller/unreachable_brokers.py",
        "            send_live_brokers(self._context, broker_id)\n",
        "",
        "tests/unit/coordinator/controller/test_unreachable_brokers.py"
        "::TestUnreachableBrokers",
    ),
    Mutation(
        "B94", "coordinator/controller/unreachable_brokers.py",
        "call_later(seconds, self._trust, broker_id)",
        "call_later(0, self._trust, broker_id)",
        _TEST_CUT_LINKS,
    ),
    Mutation(
        "B12", _MARKERS,
        "MOST_PARTITIONS: Final = 1_500\n",
        "MOST_PARTITIONS: Final = 2_000_000\n",
        f"{_TEST_MARKERS}::test_transaction_over_12000_partitions_ends",
    ),
    Mutation(
        "B77", "coordinator/transaction/listing.py",
        "                budget.left -= self.id_pattern.match_units(txn.transactional_id)\n", "",
        "tests/unit/coordinator/transaction/test_listing.py"
        "::test_listing_by_a_costly_pattern_matches_one_id_in_a_slice",
    ),
    Mutation(
        "B77", "coordinator/regular_expression.py",
        "        if self._program_size > MAX_PROGRAM_SIZE:\n", "        if False:\n",
        "tests/unit/coordinator/test_regular_expression.py"
        "::test_pattern_of_too_many_instructions_is_refused_and_the_limit_is_named",
    ),
    Mutation(
        "B77", "broker/handlers/list_transactions.py",
        "    budget.left -= compile_units(pattern or \"\")\n", "",
        "tests/unit/broker/handlers/test_transactions.py"
        "::test_other_requests_are_served_while_a_costly_pattern_is_compiled_and_matched",
    ),
    Mutation(
        "B98", "coordinator/group/coordinator.py",
        "        if shard.log.is_deserted:\n            reply(ErrorCode.NOT_COORDINATOR)",
        "        if False:\n            reply(ErrorCode.NOT_COORDINATOR)",
        f"{_TEST_DESERTED_GROUP}::test_offsets_are_not_given_out",
    ),
    Mutation(
        "B98", "coordinator/group/coordinator.py",
        "        if shard.log.is_deserted:\n            reply(ErrorCode.NOT_COORDINATOR)",
        "        if False:\n            reply(ErrorCode.NOT_COORDINATOR)",
        "tests/simulation/test_cluster_transactions.py::TestShortages",
    ),
    Mutation(
        "B98", _SHARD,
        "if error in _DISMISSALS and self.log.is_deserted else error\n",
        "if False else error\n",
        "tests/simulation/test_silent_followers.py::"
        "test_coordinator_that_was_replaced_dismisses_no_member_of_its_successor",
    ),
    Mutation(
        "B98", _SHARD,
        "        if self.log.is_deserted:\n            loop",
        "        if False:\n            loop",
        f"{_TEST_DESERTED_GROUP}::test_silent_member_is_expelled_only_when_followers_fetch_again",
    ),
    Mutation(
        "B98", _OFFSET_REQUESTS,
        "at_most_ms = _patience_ms(shard, committer) if committer.producer is None else None\n",
        "at_most_ms = None\n",
        "tests/simulation/test_silent_followers.py::"
        "test_members_keep_session_and_commits_while_both_followers_stand_still",
    ),
    Mutation(
        "B98", _STATE_MANAGER,
        "return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition.log.is_deserted else partition\n",
        "return partition\n",
        f"{_TEST_DESERTED_TRANSACTION}::test_deserted_coordinator_decides_nothing",
    ),
    Mutation(
        "B98", _SWEEPS,
        "            if partition.log.is_deserted:\n",
        "            if False:\n",
        f"{_TEST_DESERTED_TRANSACTION}::test_transaction_does_not_time_out_while_its_own_end_is_refused",
    ),
    Mutation(
        "B98", _PROGRESS,
        "        return max(self.last_fetches_ms(waiting).values(), default=limit_ms) < limit_ms\n",
        "        return False\n",
        f"{_TEST_PARTITION}::TestDesertion",
    ),
    Mutation(
        "B99", _SLOTS,
        "                displaced = self._find_least_recently_used()\n", "                pass\n",
        f"{_TEST_SOCKET_SERVER}::test_connection_of_a_broker_on_a_listener_of_its_own_displaces_one_of_a_client",
    ),
    Mutation(
        "B99", _SLOTS,
        "return connection if accepted_at <= now - SILENCE_SECONDS else None", "return None",
        f"{_TEST_SOCKET_SERVER}::test_connection_beyond_limit_displaces_one_that_stays_silent",
    ),
    Mutation(
        "B99", _SLOTS,
        "        self._silent[connection] = now\n", "            self._silent[connection] = now\n",
        f"{_TEST_SLOTS}::test_silent_connections_on_the_protected_listener_are_displaced",
    ),
    Mutation(
        "B99", _SLOTS,
        "            if not connection.has_sent_request:\n", "            if True:\n",
        f"{_TEST_SLOTS}::test_connection_that_has_sent_a_request_is_not_displaced_on_its_own_listener",
    ),
    Mutation(
        "B99", _SLOTS,
        "not (is_protected and has_descriptor)", "not is_protected",
        f"{_TEST_SLOTS}::test_protected_connection_goes_beyond_max_connections_but_not_beyond_descriptors",
    ),
    Mutation(
        "B99", _SOCKET_SERVER,
        "        if connection not in self._adopted:\n", "        if True:\n",
        f"{_TEST_HEARTBEATS}::test_adopted_connections_keep_their_slots_until_they_are_closed",
    ),
    Mutation(
        "B99", _HEARTBEATS,
        "self.is_turning, max_idle_seconds, lost)", "self.is_turning, None, lost)",
        f"{_TEST_HEARTBEATS}::test_adopted_connection_that_falls_silent_is_closed",
    ),
    Mutation(
        "B100", "broker/replication/follower_session.py",
        "        followed.sent_position = None\n        if followed.key in self._at_leader:\n",
        "        if followed.sent_position is not None:\n            followed.sent_position = None\n",
        "tests/unit/broker/replication/test_follower_session.py"
        "::test_partition_added_again_and_removed_at_once_is_forgotten",
    ),
    Mutation(
        "B100", "broker/replication/follower_session.py",
        "            self._forgotten[key] = None\n            return None\n", "            return None\n",
        "tests/unit/broker/replication/test_follower_session.py"
        "::test_partition_in_a_response_that_is_not_fetched_is_forgotten",
    ),
    Mutation(
        "B100", "broker/replication/replica_fetcher.py",
        "if self._session.is_in_vain:", "if False:",
        "tests/unit/broker/replication/test_replica_fetcher.py"
        "::test_leader_that_returns_errors_at_once_gets_ten_fetches_per_second",
    ),
    Mutation(
        "B101", _STATE_MANAGER,
        "if error is not ErrorCode.NONE and txn.pending is transition and not commit.is_in_log:",
        "if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):",
        f"{_TEST_COORDINATOR}::test_exception_in_an_append_leaves_the_id_as_it_was",
    ),
    Mutation(
        "B101", _STATE_MANAGER,
        "                commit.is_in_log = True\n", "",
        f"{_TEST_COORDINATOR}::test_exception_after_prepare_was_written_still_completes_the_transaction",
    ),
    Mutation(
        "B101", "coordinator/transaction/completion.py",
        "        error = ErrorCode.UNKNOWN_SERVER_ERROR\n", "        error = ErrorCode.NONE\n",
        f"{_TEST_COORDINATOR}::test_exception_in_the_append_of_complete_is_retried_unless_it_was_written",
    ),
    Mutation(
        "B101", _STATE_MANAGER,
        "end_offset: int | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR", "end_offset: int | ErrorCode = 0",
        f"{_TEST_COORDINATOR}::test_exception_in_the_append_of_tombstones_leaves_no_id_busy",
    ),
    Mutation(
        "B101", "broker/transactions/markers.py",
        "            with self._contained:\n", "            if True:\n",
        f"{_TEST_MARKER_WRITE}::test_exception_in_a_local_marker_is_the_error_of_its_partition_only",
    ),
    Mutation(
        "B101", "broker/replication/offset_waiters.py",
        "            if not is_done:\n", "            if False:\n",
        "tests/unit/broker/replication/test_offset_waiters.py"
        "::test_exception_of_a_waiter_comes_after_the_others_were_called",
    ),
    Mutation(
        "B101", "broker/replication/offset_waiters.py",
        "waiter[:2]):\n            with contained:\n                callback(error)\n",
        "waiter[:2]):\n            callback(error)\n",
        "tests/unit/broker/replication/test_offset_waiters.py"
        "::test_exception_of_a_waiter_comes_after_the_others_were_called",
    ),
    Mutation(
        "B101", _STATE_MANAGER,
        "partition_leader_epoch >= log.leader_epoch", "partition_leader_epoch == log.leader_epoch",
        f"{_TEST_COORDINATOR}::test_exception_after_prepare_was_written_still_completes_the_transaction",
    ),
    Mutation(
        "B103", "broker/replication/offset_waiters.py",
        "        if self._is_releasing:\n", "        if False:\n",
        "tests/simulation/test_replicated_transactions.py"
        "::test_transactions_that_waited_for_the_same_follower_are_completed_when_it_dies",
    ),
    Mutation(
        "B103", "broker/storage/partition_log.py",
        "        finally:\n            if not is_whole:\n                self.failed = True  # Before",
        "        finally:\n            if False:\n                self.failed = True  # Before",
        "tests/unit/broker/storage/test_log_failures.py"
        "::test_append_that_ends_at_any_call_leaves_a_log_that_is_whole_or_fails",
    ),
    Mutation(
        "B103", "broker/storage/partition_log.py",
        "        finally:\n            if not is_whole:\n                self.failed = True\n",
        "        finally:\n            if False:\n                self.failed = True\n",
        "tests/unit/broker/storage/test_log_failures.py"
        "::test_append_that_ends_at_any_call_leaves_a_log_that_is_whole_or_fails",
    ),
    Mutation(
        "B102", "coordinator/controller/event_queue.py",
        "            async with asyncio.timeout_at(until):\n                await self._places.acquire()\n",
        "            async with asyncio.timeout_at(until), self._places:\n",
        f"{_TEST_EVENT_QUEUE}::test_work_of_cancelled_callers_keeps_its_place_until_it_runs",
    ),
    Mutation(
        "B102", "coordinator/controller/event_queue.py",
        "            if self._items.pop(key, None) is not None:\n                self._places.release()\n",
        "            self._items.pop(key, None)\n",
        f"{_TEST_EVENT_QUEUE}::test_place_of_a_request_that_timed_out_is_free_at_once",
    ),
    Mutation(
        "B102", "coordinator/controller/event_queue.py",
        "        self._has_ended = True\n", "",
        f"{_TEST_EVENT_QUEUE}::test_request_to_a_queue_that_has_ended_raises_until_it_runs_again",
    ),
)  # fmt: skip
