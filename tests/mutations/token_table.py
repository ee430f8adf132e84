"""What B130 of the invariants rests on, taken away."""

from typing import Final

from tests.mutations.mutation import Mutation

_MODEL: Final = "coordinator/controller/delegation_tokens.py"
_REPOSITORY: Final = "coordinator/controller/token_repository.py"
_CREDENTIALS: Final = "broker/security/token_credentials.py"
_AUTHENTICATOR: Final = "broker/security/sasl_authenticator.py"
_SCRAM: Final = "broker/security/scram_server.py"
_REQUESTS: Final = "broker/handlers/token_requests.py"
_CREATE: Final = "broker/handlers/create_delegation_token.py"
_DESCRIBE: Final = "broker/handlers/describe_delegation_token.py"
_TEST_MODEL: Final = "tests/unit/coordinator/controller/test_delegation_tokens.py"
_TEST_REPOSITORY: Final = "tests/unit/coordinator/controller/test_token_repository.py"
_TEST_CREDENTIALS: Final = "tests/unit/broker/security/test_token_credentials.py"
_TEST_HANDLERS: Final = "tests/unit/broker/handlers/test_delegation_tokens.py"
_TEST_WIRE: Final = "tests/scenarios/test_delegation_tokens.py"

TOKEN_MUTATIONS: Final = (
    Mutation(
        "B130", _MODEL,
        "replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, timestamp_ms))",
        "replace(token, expiry_timestamp_ms=timestamp_ms)",
        f"{_TEST_MODEL}::test_token_never_outlives_its_maximum_and_never_revives",
    ),
    Mutation(
        "B130", _MODEL,
        "    if any(principal.type != USER for principal in (request.owner, *request.renewers)):\n",
        "    if any(principal.type != USER for principal in request.renewers):\n",
        f"{_TEST_HANDLERS}::test_owner_of_another_type_than_user_is_refused",
    ),
    Mutation(
        "B130", _REPOSITORY,
        "        return Delete(path=path, version=version)\n", "        return Delete(path=path)\n",
        f"{_TEST_REPOSITORY}::test_token_that_is_renewed_at_one_broker_is_not_removed_as_expired_by_another",
    ),
    Mutation(
        "B130", _REPOSITORY,
        "        if known is None or written_at > known.written_at:\n", "        if True:\n",
        f"{_TEST_REPOSITORY}::test_removed_token_is_not_brought_back_by_a_read_that_began_before",
    ),
    Mutation(
        "B130", _REPOSITORY,
        "                return _REMOVED if may_be_removed else ErrorCode.DELEGATION_TOKEN_NOT_FOUND\n",
        "                return ErrorCode.DELEGATION_TOKEN_NOT_FOUND\n",
        f"{_TEST_REPOSITORY}::test_removal_whose_response_was_lost_is_a_success",
    ),
    Mutation(
        "B130", _AUTHENTICATOR,
        "(self._mechanisms[self.mechanism].max_reauth_ms, step.remaining_ms)",
        "(self._mechanisms[self.mechanism].max_reauth_ms, None)",
        f"{_TEST_CREDENTIALS}::test_session_has_the_shorter_lifetime_of_setting_and_token",
    ),
    Mutation(
        "B130", _CREDENTIALS,
        "        return None if token is None or lifetime_ms <= 0 else",
        "        return None if token is None else",
        f"{_TEST_CREDENTIALS}::test_expired_token_is_refused_like_an_unknown_one",
    ),
    Mutation(
        "B130", _SCRAM,
        "self._tokens.find(self._mechanism, token_id, self._salt(token_id))",
        "self._tokens.find(self._mechanism, token_id, b\"salt\")",
        f"{_TEST_CREDENTIALS}::test_salt_does_not_say_whether_a_token_exists",
    ),
    Mutation(
        "B130", _REQUESTS,
        "    if connection.is_token_authenticated:\n", "    if False:\n",
        f"{_TEST_HANDLERS}::test_client_that_a_token_has_authenticated_may_not_request_tokens",
    ),
    Mutation(
        "B130", "broker/network/authentication_gate.py",
        "        info.is_token_authenticated = session.is_delegated\n", "",
        f"{_TEST_WIRE}::test_client_logs_in_by_token_with_each_mechanism_and_cannot_request_tokens",
    ),
    Mutation(
        "B130", _REQUESTS,
        "    return protocol != PLAINTEXT and", "    return",
        f"{_TEST_HANDLERS}::test_listener_without_authentication_carries_no_tokens",
    ),
    Mutation(
        "B130", _CREATE,
        "    if wanted.owner != wanted.requester and not broker.authorizer.authorize(\n", "    if not True and (\n",
        f"{_TEST_HANDLERS}::test_token_of_another_owner_needs_permission_for_that_owner",
    ),
    Mutation(
        "B130", _DESCRIBE,
        " and _may_see(broker, context, token)", "",
        f"{_TEST_HANDLERS}::test_token_is_shown_to_others_only_with_permission",
    ),
)  # fmt: skip
