"""Mutations of the transport that speaks TLS, and of what depends on it."""

from typing import Final

from tests.mutations.mutation import Mutation

_TRANSPORT: Final = "broker/tls/tls_transport.py"
_ENGINE: Final = "broker/tls/tls_engine.py"
_WRITER: Final = "broker/tls/tls_writer.py"
_TEST: Final = "tests/unit/broker/tls/test_tls_transport.py"
_TEST_ORDER: Final = (
    "tests/unit/broker/network/test_request_order.py"
    "::test_requests_in_a_record_that_had_come_in_part_count_as_sent_before_the_response"
)
_TEST_LISTENER: Final = "tests/unit/broker/network/test_listener_tls.py"

TLS_MUTATIONS: Final = (
    Mutation("B128", "broker/network/request_order.py", " + self._reader.held", "", _TEST_ORDER),
    Mutation("B128", "broker/network/frames.py", "bool(self._prefix or self.held)", "bool(self._prefix)", _TEST_ORDER),
    Mutation(
        "B128", _ENGINE,
        "        overhead = records.whole - self._counted - size if is_drained else 0\n",
        "        overhead = records.arrived - self._counted - size if is_drained else 0\n",
        f"{_TEST}::test_part_of_a_record_is_held",
    ),
    Mutation(
        "B128", _TRANSPORT,
        "            if self._reading_paused:\n                self._has_undelivered = True\n                return\n",
        "",
        f"{_TEST}::test_connection_that_pauses_receives_nothing_before_it_resumes",
    ),
    Mutation(
        "B128", _TRANSPORT,
        "        if self._has_undelivered:\n            self._loop.call_soon(self._read_on)\n", "",
        f"{_TEST}::test_connection_that_pauses_receives_nothing_before_it_resumes",
    ),
    Mutation(
        "B128", _WRITER,
        "        if self._queue and self.engine is not None:\n", "        if False:\n",
        f"{_TEST}::test_close_sends_what_was_written_and_that_it_was_all",
    ),
    Mutation(
        "B128", _TRANSPORT,
        "            self._socket.write(self._engine.end())\n", "            pass\n",
        f"{_TEST}::test_close_sends_what_was_written_and_that_it_was_all",
    ),
    Mutation(
        "B128", _TRANSPORT,
        "            self._deadline = self._loop.call_later(self._shared.handshake_seconds, self._time_out)\n",
        "            pass\n",
        f"{_TEST}::test_silent_client_is_refused_in_time",
    ),
    Mutation(
        "B128", _WRITER,
        "        if self._queue or self._is_full or self._is_over", "        if self._is_over",
        f"{_TEST}::test_fast_socket_gets_a_large_response_in_several_turns",
    ),
    Mutation(
        "B132", "broker/network/listener_tls.py",
        "        require_own_trust(listener, certificates)\n", "        pass\n",
        f"{_TEST_LISTENER}::test_certificate_that_brokers_would_not_accept_from_each_other_is_refused",
    ),
    Mutation(
        "B132", "broker/network/listener_tls.py",
        "        why_not_replace(listener, self._served.own, new.own)\n", "",
        f"{_TEST_LISTENER}::test_certificate_of_another_name_is_refused_and_said_once",
    ),
)  # fmt: skip
