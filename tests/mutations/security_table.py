"""The safeguards of authentication, for ``table``."""

from typing import Final

from tests.mutations.mutation import Mutation

_GATE: Final = "broker/network/authentication_gate.py"
_AUTHENTICATOR: Final = "broker/security/sasl_authenticator.py"
_SCRAM: Final = "broker/security/scram_server.py"
_PLAIN: Final = "broker/security/plain_server.py"
_SETTINGS: Final = "broker/config/sasl_config.py"
_CLIENT: Final = "clients/sasl.py"
_SESSION: Final = "clients/sasl_session.py"
_TEST_GATE: Final = "tests/unit/broker/network/test_authentication_gate.py"
_TEST_STATES: Final = "tests/scenarios/test_authentication_states.py"
_TEST_AUTHENTICATOR: Final = "tests/unit/broker/security/test_sasl_authenticator.py"
_TEST_SCRAM: Final = "tests/unit/broker/security/test_scram_server.py"
_TEST_PLAIN: Final = "tests/unit/broker/security/test_plain_server.py"
_TEST_WATCHED: Final = "tests/unit/broker/dispatch/test_watched_requests.py"
_TEST_CLIENT: Final = "tests/unit/clients/test_sasl.py"
_TEST_CONFIG: Final = "tests/unit/broker/config/test_sasl_config.py"
_TEST_CLUSTER: Final = "tests/simulation/test_authenticated_cluster.py"
_TEST_CONNECTIONS: Final = "tests/scenarios/test_authenticated_clients.py"

SECURITY_MUTATIONS: Final = (
    Mutation(
        "B118", _GATE,
        "            return response\n        raise CloseConnection(\n",
        "            return response\n        return self._dispatcher.dispatch(frame, connection)\n"
        "        raise CloseConnection(\n",
        f"{_TEST_STATES}::test_apis_in_every_state_have_the_outcome_of_kafka",
    ),
    Mutation(
        "B118", _GATE,
        "        self._set_timer(settings.timeout_seconds, self._time_out)\n", "",
        f"{_TEST_GATE}::test_client_that_does_not_authenticate_is_closed_in_time",
    ),
    Mutation(
        "B118", "broker/network/gate.py",
        "self.is_open = gate, gate.dispatch, False\n        self._reader.max_size = max_bytes\n",
        "self.is_open = gate, gate.dispatch, False\n",
        f"{_TEST_GATE}::test_bad_length_before_authentication_closes_after_the_delay_without_memory",
    ),
    Mutation(
        "B118", _GATE,
        "        return CloseConnection(reason, response, after_seconds=self._settings.failure_delay_seconds)\n",
        "        return CloseConnection(reason, response)\n",
        f"{_TEST_GATE}::test_failure_has_its_response_and_is_closed_after_the_delay_and_nothing_else_is_read",
    ),
    Mutation(
        "B118", _GATE,
        "            connection.carries_heartbeats = False  # Such a connection leaves this loop: not before it may.\n",
        "",
        f"{_TEST_GATE}::test_heartbeat_client_id_does_not_leave_the_gate_behind",
    ),
    Mutation(
        "B118", _GATE,
        "        if self._timer is not None:\n            self._timer.cancel()\n\n    # The requests before",
        "        pass\n\n    # The requests before",
        f"{_TEST_GATE}::test_connection_that_is_lost_leaves_no_timer",
    ),
    Mutation(
        "B118", "broker/network/gate.py",
        "_lost()\n            self._gate, self.dispatch = None, self._dispatcher.dispatch\n",
        "_lost()\n",
        f"{_TEST_GATE}::test_gate_of_a_lost_connection_is_freed_without_a_collection_of_garbage",
    ),
    Mutation(
        "B118", "broker/network/connection.py",
        "        self.has_sent_request = self.entrance.is_open\n", "        self.has_sent_request = True\n",
        f"{_TEST_GATE}::test_client_without_authentication_counts_as_one_that_has_sent_nothing",
    ),
    Mutation(
        "B119", _PLAIN,
        "        if message.authorization_id not in (\"\", message.user):\n", "        if False:\n",
        f"{_TEST_PLAIN}::test_other_token_is_refused_with_the_text_of_kafka",
    ),
    Mutation(
        "B119", _SCRAM,
        "        if first.authorization_id not in (\"\", first.user):\n", "        if False:\n",
        f"{_TEST_SCRAM}::test_other_authorization_id_is_refused_before_a_user_is_looked_for",
    ),
    Mutation(
        "B119", _SCRAM,
        "        if final.nonce not in (self._nonce, first.nonce + self._nonce):  # or librdkafka < 2.6.1\n",
        "        if False:\n",
        f"{_TEST_SCRAM}::test_other_nonce_in_the_final_message_is_refused_with_a_right_password",
    ),
    Mutation(
        "B119", _SCRAM,
        "        if final.header != first.header:\n", "        if False:\n",
        f"{_TEST_SCRAM}::test_other_channel_binding_header_in_the_final_message_is_refused",
    ),
    Mutation(
        "B119", _SCRAM,
        "        shown = self._credential or self._fake(first.user)\n",
        "        if self._credential is None:\n            return self._refused(\"an unknown user\")\n"
        "        shown = self._credential\n",
        f"{_TEST_SCRAM}::test_unknown_user_is_refused_at_its_proof_like_a_wrong_password",
    ),
    Mutation(
        "B119", _SCRAM,
        "self._mechanism.hmac(self._fake_salt_key, name.encode())", "self._rng.randbytes(32)",
        f"{_TEST_SCRAM}::test_salt_of_unknown_user_is_always_the_same_and_depends_on_name_and_key",
    ),
    Mutation(
        "B119", _SETTINGS,
        "        if mechanism and key.endswith(_JAAS):\n", "        if False:\n",
        f"{_TEST_CONFIG}::test_setting_that_cannot_work_is_refused_without_its_secrets",
    ),
    Mutation(
        "B119", "protocol/sasl/scram_messages.py",
        "        if not _EXTENSION.fullmatch(text) or text.startswith(\"m=\"):\n",
        "        if not _EXTENSION.fullmatch(text):\n",
        "tests/unit/protocol/sasl/test_scram.py::test_malformed_client_first_message_is_refused",
    ),
    Mutation(
        "B120", _GATE,
        "        if self._expired:\n", "        if False:\n",
        f"{_TEST_GATE}::test_expired_session_closes_at_the_next_request_and_a_late_authentication_passes",
    ),
    Mutation(
        "B120", _AUTHENTICATOR,
        "            step = self._why_other(step) or step\n", "            pass\n",
        f"{_TEST_AUTHENTICATOR}::test_other_user_or_mechanism_or_password_ends_the_connection",
    ),
    Mutation(
        "B120", _AUTHENTICATOR,
        "        step = self._refused_again() or self._server.respond(token)\n",
        "        step = self._server.respond(token)\n",
        f"{_TEST_AUTHENTICATOR}::test_other_user_or_mechanism_or_password_ends_the_connection",
    ),
    Mutation(
        "B120", _SESSION,
        "        self._line.outbox.hold()\n", "",
        f"{_TEST_CONNECTIONS}::test_connection_outlives_many_sessions_without_losing_a_request",
    ),
    Mutation(
        "B120", "broker/peers/heartbeat.py",
        "            connection.session.end()\n", "            pass\n",
        f"{_TEST_CLUSTER}::test_sessions_that_end_cost_no_connection_between_brokers",
    ),
    Mutation(
        "B121", _CLIENT,
        "        if not MIN_ITERATIONS <= first.iterations <= self._max_iterations:\n", "        if False:\n",
        f"{_TEST_CLIENT}::test_iterations_beyond_the_bounds_are_refused_without_computing",
    ),
    Mutation(
        "B121", _CLIENT,
        "        if not first.nonce.startswith(nonce) or len(first.nonce) == len(nonce):\n", "        if False:\n",
        f"{_TEST_CLIENT}::test_nonce_that_does_not_continue_the_clients_is_refused",
    ),
    Mutation(
        "B121", _CLIENT,
        "        if not hmac.compare_digest(parse_server_final(signature), "
        "server_signature(mechanism, server_key, signed)):\n",
        "        if not parse_server_final(signature):\n",
        f"{_TEST_CLIENT}::test_server_that_does_not_know_the_password_is_refused",
    ),
    Mutation(
        "B121", _CLIENT,
        "await loop.run_in_executor(None, salt_password, mechanism, login.password, *key)",
        "salt_password(mechanism, login.password, *key)",
        f"{_TEST_CLIENT}::test_salted_password_is_computed_once_and_off_the_loop",
    ),
    Mutation(
        "B141", "broker/dispatch/sliced_work.py",
        "not connection.is_open and not connection.changes_under_way:\n",
        "not connection.is_open:\n",
        f"{_TEST_WATCHED}::test_change_whose_client_goes_while_the_response_is_made_is_seen",
    ),
    Mutation(
        "B141", "broker/dispatch/dispatcher.py",
        "            dispatcher.watch_unknown(route, context, request)\n", "",
        f"{_TEST_WATCHED}::test_change_whose_outcome_no_client_waits_for_is_seen_as_unknown",
    ),
    Mutation(
        "B141", "broker/dispatch/dispatcher.py",
        "        if len(frame) > _LARGEST_REFUSED:\n            return _NO_RESPONSE\n", "",
        f"{_TEST_GATE}::test_large_request_in_place_of_a_token_is_not_decoded_and_has_no_response",
    ),
    Mutation(
        "B141", "broker/dispatch/dispatcher.py",
        "_UNDIVIDED: Final = frozenset({ApiKey.PRODUCE, ApiKey.API_VERSIONS})\n",
        "_UNDIVIDED: Final = frozenset({ApiKey.PRODUCE})\n",
        f"{_TEST_GATE}::test_large_api_versions_does_not_leave_the_gate_behind",
    ),
    Mutation(
        "B145", "broker/network/tls_listeners.py",
        "    if audit_file and os.path.dirname(path)",
        "    if not audit_file and os.path.dirname(path)",
        "tests/integration/test_altered_certificates.py::test_files_that_clients_write_into_are_no_stores",
    ),
    Mutation(
        "B145", "protocol/tls/pem.py",
        "            end = _END.fullmatch(bare)\n",
        "            end = _END.match(bare)\n",
        "tests/unit/protocol/tls/test_pem.py::test_text_in_another_form_has_no_block_and_is_no_store",
    ),
    Mutation(
        "B145", "broker/network/long_requests.py",
        "        return self._bytes == 0 or self._bytes + size <= self._most_bytes\n",
        "        return True\n",
        "tests/unit/broker/network/test_long_requests.py"
        "::test_account_has_room_for_its_bytes_and_for_one_request_of_any_size",
    ),
)  # fmt: skip
