"""The safeguards of the audit log."""

from typing import Final

from tests.mutations.mutation import Mutation

_VERDICT: Final = "broker/security/audit_verdict.py"
_LOG: Final = "broker/security/audit_log.py"
_TEST_VERDICT: Final = "tests/unit/broker/security/test_audit_verdict.py"
_TEST_LOG: Final = "tests/unit/broker/security/test_audit_log.py"
_TEST_LOGINS: Final = "tests/unit/broker/security/test_login_log.py"
_TEST_GATE: Final = "tests/unit/broker/network/test_authentication_gate.py"

AUDIT_MUTATIONS: Final = (
    Mutation(
        "B139", _VERDICT,
        "                self._note_gap(name, head.line)\n", "                pass\n",
        f"{_TEST_VERDICT}::test_file_that_is_missing_is_named_and_all_others_are_judged",
    ),
    Mutation(
        "B139", _VERDICT,
        "                verdict.head = Head(head.line - 1, previous_seal(body))\n", "                pass\n",
        f"{_TEST_VERDICT}::test_file_that_is_missing_is_named_and_all_others_are_judged",
    ),
    Mutation(
        "B139", _VERDICT,
        "if is_first and head.line > verdict.head.line + 1:\n                self._note_gap(name, head.line)\n",
        "if is_first and head.line > 1:\n",
        f"{_TEST_VERDICT}::test_file_that_was_written_anew_is_found_by_the_next_one",
    ),
    Mutation(
        "B139", "broker/security/audit_files.py",
        "        head = _last_ended(disk, path, key)\n", "        pass\n",
        f"{_TEST_LOG}::test_broker_that_crashed_between_two_files_carries_on_with_the_chain",
    ),
    Mutation(
        "B139", _LOG,
        "        if disk.exists(ended):\n", "        if False:\n",
        f"{_TEST_LOG}::test_file_of_the_name_of_an_ended_one_is_kept",
    ),
    Mutation(
        "B139", _LOG,
        "            disk.rename(ended, path)\n", "            pass\n",
        f"{_TEST_LOG}::test_file_that_cannot_be_ended_goes_on_until_it_can",
    ),
    Mutation(
        "B139", "broker/security/login_log.py",
        "        elif self._kinds[kind.event] < _MOST_COUNTED:\n", "        elif True:\n",
        f"{_TEST_LOGINS}::test_logins_from_many_addresses_are_bounded_lines",
    ),
    Mutation(
        "B139", "broker/security/plain_server.py",
        '            user = message.user if known else ""\n', "            user = message.user\n",
        f"{_TEST_GATE}::test_logins_and_failures_are_audited_without_what_the_client_sent",
    ),
    Mutation(
        "B140", "broker/dispatch/dispatcher.py",
        "            most = self._max_elements\n", "            pass\n",
        "tests/unit/broker/dispatch/test_dispatcher.py"
        "::test_large_request_of_a_controller_is_not_decoded_for_a_client_that_may_not_send_it",
    ),
    Mutation(
        "B140", "broker/quotas/client_quotas.py",
        "api_key in _BETWEEN_BROKERS and self.may_act(context)", "api_key in _BETWEEN_BROKERS",
        "tests/unit/broker/quotas/test_client_quotas.py"
        "::test_time_of_requests_that_only_brokers_may_send_counts_for_a_client_that_may_not",
    ),
    Mutation(
        "B140", "broker/security/audit_log.py",
        "_shortened(value, _LONGER.get(key, _LONGEST_VALUE))", "value",
        "tests/unit/broker/security/test_audit_log.py"
        "::test_line_with_the_longest_names_is_one_that_a_start_finds_again",
    ),
    Mutation(
        "B140", "broker/security/audit_log.py",
        " or self._waiting_bytes >= _MOST_WAITING_BYTES", "",
        "tests/unit/broker/security/test_audit_log.py::test_lines_that_wait_are_bounded_in_bytes",
    ),
)  # fmt: skip
