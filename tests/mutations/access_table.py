"""The safeguards of access control."""

from typing import Final

from tests.mutations.mutation import Mutation

_REPOSITORY: Final = "coordinator/controller/acl_repository.py"
_INDEX: Final = "broker/security/acl_index.py"
_TEST_REPOSITORY: Final = "tests/unit/coordinator/controller/test_acls.py"
_TEST_DECISIONS: Final = "tests/unit/broker/security/test_decisions.py"
_TEST_INDEX: Final = "tests/unit/broker/security/test_acl_index.py"
_TEST_DENIALS: Final = "tests/unit/broker/security/test_denial_log.py"
_CELLS: Final = "tests/conformance/test_acl_cells.py::test_responses_under_every_state_are_those_of_kafka"

ACCESS_MUTATIONS: Final = (
    Mutation(
        "B117", _REPOSITORY,
        "        if known is None or written_at > known.written_at:\n",
        "        if True:\n",
        f"{_TEST_REPOSITORY}::test_removed_znode_is_not_brought_back_by_a_read_that_began_before",
    ),
    Mutation(
        "B117", _REPOSITORY,
        "        return _EVERYTHING_DENIED if pattern in self._unreadable else NO_ENTRIES\n",
        "        return NO_ENTRIES\n",
        f"{_TEST_REPOSITORY}::test_malformed_znode_denies_everything_until_it_is_mended",
    ),
    Mutation(
        "B117", _REPOSITORY,
        "        write = SetData(path=path, data=acl_znodes.encode_entries(after), version=znode.stat.version)\n",
        "        write = SetData(path=path, data=acl_znodes.encode_entries(after), version=-1)\n",
        f"{_TEST_REPOSITORY}::test_changes_of_two_brokers_at_once_are_both_made",
    ),
    Mutation(
        "B117", _REPOSITORY,
        "            for pattern, decision in decisions.items():  # They may be removed, and then no later attempt",
        "            for pattern, decision in ():  # They may be removed, and then no later attempt",
        f"{_TEST_REPOSITORY}::test_removal_whose_response_was_lost_still_names_what_it_removed",
    ),
    Mutation(
        "B117", _REPOSITORY,
        "            if len(names) >= _KEPT_CHANGES and folder.seen.isdisjoint(names):\n",
        "            if False:\n",
        f"{_TEST_REPOSITORY}::test_notifications_do_not_pile_up_and_a_late_broker_reads_everything",
    ),
    Mutation(
        "B117", _REPOSITORY,
        "        await self._read_announced(session, [await _announced(session, folder, None)",
        "        ([await _announced(session, folder, None)",
        f"{_TEST_REPOSITORY}::test_deletion_sees_what_another_broker_has_just_added",
    ),
    Mutation(
        "B117", "coordinator/controller/stored_settings.py",
        "            await self.acls.load(session, self._acls_changed)\n",
        "            pass\n",
        "tests/simulation/test_access_control.py::test_broker_whose_session_expired_reads_everything_again",
    ),
    Mutation(
        "B117", "coordinator/controller/stored_settings.py",
        "            await self.acls.refresh(session, self._acls_changed)\n",
        "            pass\n",
        "tests/simulation/test_access_control.py::test_change_through_any_broker_is_followed_by_all",
    ),
    Mutation(
        "B117", _INDEX,
        "        return allowed & ~denied\n",
        "        return allowed\n",
        f"{_TEST_INDEX}::test_operation_on_a_topic_is_decided_as_in_kafka",
    ),
    Mutation(
        "B117", _INDEX,
        "        literals = dict(self._literals)\n",
        "        literals = self._literals\n",
        f"{_TEST_INDEX}::test_change_leaves_the_former_index_as_it_was",
    ),
    Mutation(
        "B117", _INDEX,
        "            prefix = prefix.parent\n        return prefix\n",
        "            prefix = None\n        return prefix\n",
        f"{_TEST_INDEX}::test_prefix_that_a_name_begins_with_is_found_among_others",
    ),
    Mutation(
        "B117", "broker/security/decisions.py",
        "        if self.count >= _MOST_KEPT:\n",
        "        if False:\n",
        f"{_TEST_DECISIONS}::test_decisions_that_are_kept_are_bounded",
    ),
    Mutation(
        "B117", "broker/security/acl_authorizer.py",
        "changed(changes)\n            self.decisions = Decisions()\n",
        "changed(changes)\n",
        f"{_TEST_DECISIONS}::test_authorizer_decides_by_the_lists_of_now_whatever_it_decided_before",
    ),
    Mutation(
        "B117", "broker/security/acl_authorizer.py",
        "        elif index is None:\n            return 0\n",
        "        elif index is None:\n            allowed = None\n",
        f"{_TEST_DENIALS}::test_client_is_allowed_nothing_before_the_lists_are_known",
    ),
    Mutation(
        "B117", "broker/security/denial_log.py",
        "        elif len(self._more) < _MOST_COUNTED:\n",
        "        elif True:\n",
        f"{_TEST_DENIALS}::test_denials_of_many_principals_are_bounded_lines",
    ),
    Mutation(
        "B117", "broker/handlers/delete_topics.py",
        "    if topic.name is not None and not authorizer.authorize(context, Operation.DESCRIBE,",
        "    if False and not authorizer.authorize(context, Operation.DESCRIBE,",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/delete_topics.py",
        "name=name if may_describe else None, topic_id",
        "name=name, topic_id",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/fetch.py",
        "and (is_old or not _is_broker(broker, context)):\n",
        "and is_old:\n",
        "tests/unit/broker/handlers/test_follower_fetch.py"
        "::test_unauthorized_fetch_in_the_name_of_a_follower_changes_nothing_of_it",
    ),
    Mutation(
        "B117", "broker/handlers/list_groups.py",
        "        if sees_all or permits(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):\n",
        "        if True:\n",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/list_transactions.py",
        "        if _is_visible(broker, context, txn):\n",
        "        if True:\n",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/describe_transactions.py",
        "            if self.broker.authorizer.permits(self.context, Operation.DESCRIBE, ResourceType.TOPIC, topic)\n",
        "",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/describe_cluster.py",
        "    if not broker.authorizer.permits(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):\n",
        "    if False:\n",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/offset_fetch.py",
        "        if broker.authorizer.permits(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)\n"
        "        and not (",
        "        if not (",
        _CELLS,
    ),
    Mutation(
        "B117", "broker/handlers/describe_delegation_token.py",
        "        context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)\n",
        "        context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(context.connection.principal)\n",
        _CELLS,
    ),
)  # fmt: skip
