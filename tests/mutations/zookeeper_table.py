"""What B134, B135 and B136 of the invariants rest on, taken away."""

from typing import Final

from tests.mutations.mutation import Mutation

_STORE: Final = "coordinator/metadata_store"
_TEST_STORE: Final = "tests/unit/coordinator/metadata_store"
_HANDSHAKES: Final = f"{_TEST_STORE}/test_kazoo_handshake.py"
_ACCESS: Final = f"{_TEST_STORE}/test_znode_access.py"
_ENCODINGS: Final = f"{_TEST_STORE}/test_kazoo_encodings.py"
_TLS: Final = "tests/unit/broker/security/test_zookeeper_tls.py"
_CONFIG: Final = "tests/unit/broker/config/test_zookeeper_config.py"

ZOOKEEPER_MUTATIONS: Final = (
    Mutation(
        "B134", f"{_STORE}/kazoo_client.py",
        "access_of if security.protects_znodes else _open_to_all", "_open_to_all",
        f"{_HANDSHAKES}::test_created_znode_is_for_the_user_of_the_client_if_znodes_are_protected",
    ),
    Mutation(
        "B134", f"{_STORE}/znode_access.py",
        "return ZnodeAccess.SECRET if path.startswith(SECRET_ROOTS) else ZnodeAccess.READABLE",
        "return ZnodeAccess.READABLE",
        f"{_ACCESS}::test_access_of_a_znode_is_that_of_kafka",
    ),
    Mutation(
        "B134", f"{_STORE}/znode_access.py",
        "    \"/delegation_token\",\n", "",
        f"{_ACCESS}::test_znodes_of_brokers_lie_below_protected_roots",
    ),
    Mutation(
        "B134", f"{_STORE}/kazoo_encodings.py",
        "    if isinstance(found, NoNodeError):\n", "    if isinstance(found, NoNodeError | NoAuthError):\n",
        f"{_ENCODINGS}::test_znode_that_may_not_be_read_is_no_missing_one",
    ),
    Mutation(
        "B134", "broker/config/zookeeper_config.py",
        "    if access.protects_znodes and not access.has_user:\n", "    if False:\n",
        f"{_CONFIG}::test_setting_that_cannot_work_or_protects_nothing_is_refused",
    ),
    Mutation(
        "B135", f"{_STORE}/kazoo_handshake.py",
        "        if self._security.tls is None:\n            return connection\n", "        return connection\n",
        f"{_TLS}::test_certificate_that_is_not_accepted_ends_the_start_with_the_setting",
    ),
    Mutation(
        "B135", f"{_STORE}/kazoo_handshake.py",
        "        if not received:\n", "        if True:\n",
        f"{_TLS}::test_responses_in_one_record_of_tls_are_all_received_at_once",
    ),
    Mutation(
        "B135", f"{_STORE}/kazoo_handshake.py",
        "return AuthFailedError(text) if ends_session else ConnectionDropped(text)",
        "return ConnectionDropped(text)",
        f"{_HANDSHAKES}::test_broker_that_is_refused_while_it_runs_ends_its_session_and_tries_again_slowly",
    ),
    Mutation(
        "B135", f"{_STORE}/kazoo_login.py",
        "    if not client.complete:\n", "    if False:\n",
        f"{_HANDSHAKES}::test_server_that_takes_no_login_ends_the_start",
    ),
    Mutation(
        "B135", f"{_STORE}/zookeeper.py",
        "            self._refused.set_result(reason)\n", "            pass\n",
        f"{_HANDSHAKES}::test_wrong_password_ends_the_start_with_the_setting",
    ),
    Mutation(
        "B135", "broker/config/zookeeper_config.py",
        "        if key.startswith(_SSL) and not config.zookeeper_ssl_client_enable:\n", "        if False:\n",
        f"{_CONFIG}::test_setting_that_cannot_work_or_protects_nothing_is_refused",
    ),
    Mutation(
        "B135", "broker/security/zookeeper_tls.py",
        "        if versions == self._read:\n", "        if True:\n",
        f"{_TLS}::test_replaced_trust_store_counts_for_the_next_connection",
    ),
    Mutation(
        "B136", f"{_STORE}/kazoo_log.py",
        "        if level <= logging.DEBUG:\n", "        if False:\n",
        f"{_HANDSHAKES}::test_log_has_neither_password_nor_response_nor_session_password",
    ),
    Mutation(
        "B136", "protocol/sasl/digest_login.py",
        "    password: str = field(repr=False)\n", "    password: str = field()\n",
        "tests/unit/protocol/sasl/test_digest_login.py::test_login_is_parsed_and_its_text_has_no_password",
    ),
    Mutation(
        "B136", "broker/config/zookeeper_settings.py",
        "oncelog_zookeeper_sasl_jaas_config: str | None = password(",
        "oncelog_zookeeper_sasl_jaas_config: str | None = string(None, ",
        f"{_CONFIG}::test_secrets_among_the_settings_are_never_described",
    ),
)  # fmt: skip
