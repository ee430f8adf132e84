"""Mutations of authentication by tokens."""

from typing import Final

from tests.mutations.mutation import Mutation

_VERIFIER: Final = "broker/security/token_verifier.py"
_SERVER: Final = "broker/security/oauth_server.py"
_KEYS: Final = "broker/security/json_web_keys.py"
_JWKS: Final = "broker/security/jwks.py"
_AUTHENTICATOR: Final = "broker/security/sasl_authenticator.py"
_CONFIG: Final = "broker/config/oauth_config.py"
_EXCHANGE: Final = "clients/http_exchange.py"
_TEST_VERIFIER: Final = "tests/unit/broker/security/test_token_verifier.py"
_TEST_SERVER: Final = "tests/unit/broker/security/test_oauth_server.py"
_TEST_KEYS: Final = "tests/unit/broker/security/test_json_web_keys.py"
_TEST_JWKS: Final = "tests/unit/broker/security/test_jwks.py"
_TEST_AUTHENTICATOR: Final = "tests/unit/broker/security/test_sasl_authenticator.py"
_TEST_CONFIG: Final = "tests/unit/broker/config/test_oauth_config.py"
_TEST_EXCHANGE: Final = "tests/unit/clients/test_http_exchange.py"
_TEST_SESSIONS: Final = "tests/scenarios/test_oauth_sessions.py"
_TEST_CLAIMS: Final = f"{_TEST_VERIFIER}::test_claims_that_are_not_for_this_broker_are_refused"

OAUTH_MUTATIONS: Final = (
    Mutation(
        "B129", _VERIFIER,
        "        _verify_signature(token, _key_for(header, algorithm, keys), algorithm)\n",
        "        _key_for(header, algorithm, keys)\n",
        f"{_TEST_VERIFIER}::test_token_by_another_key_is_refused",
    ),
    Mutation(
        "B129", _VERIFIER,
        "        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:\n",
        "        if not isinstance(algorithm, str):\n",
        f"{_TEST_VERIFIER}::test_token_without_a_signature_is_refused",
    ),
    Mutation(
        "B129", _VERIFIER, "    if len(fitting) > 1:\n", "    if False:\n",
        f"{_TEST_VERIFIER}::test_missing_key_id_is_accepted_if_one_key_fits_and_refused_if_two_do",
    ),
    Mutation(
        "B129", _VERIFIER, "    if \"crit\" in header or \"b64\" in header:\n", "    if False:\n",
        f"{_TEST_VERIFIER}::test_header_that_requires_an_extension_is_refused",
    ),
    Mutation("B129", _VERIFIER, "    if now >= expires + skew:\n", "    if False:\n", _TEST_CLAIMS),
    Mutation("B129", _VERIFIER, "    if now < issued - skew:\n", "    if False:\n", _TEST_CLAIMS),
    Mutation("B129", _VERIFIER, "    if \"nbf\" in claims and now", "    if False and now", _TEST_CLAIMS),
    Mutation("B129", _VERIFIER, "    if rules.issuer and ", "    if False and ", _TEST_CLAIMS),
    Mutation("B129", _VERIFIER, "    if rules.audience and not", "    if False and not", _TEST_CLAIMS),
    Mutation(
        "B129", _VERIFIER, "    if len(found) != len(pairs):\n", "    if False:\n",
        f"{_TEST_VERIFIER}::test_claims_with_a_name_twice_are_refused",
    ),
    Mutation(
        "B129", _KEYS, "_bits(entry[\"n\"]) not in _RSA_BITS or ", "",
        f"{_TEST_KEYS}::test_unusable_key_is_left_out_and_others_stay",
    ),
    Mutation(
        "B129", _KEYS, "    return {\"kty\": entry[\"kty\"], **values}\n", "    return dict(entry)\n",
        f"{_TEST_KEYS}::test_private_part_of_a_key_is_not_read",
    ),
    Mutation(
        "B129", _SERVER, "        if message.authorization_id not in (\"\", outcome.user):\n", "        if False:\n",
        f"{_TEST_SERVER}::test_authorization_id_must_be_the_user_of_the_token",
    ),
    Mutation(
        "B129", _SERVER, "        if self._reason:\n", "        if False:\n",
        f"{_TEST_SERVER}::test_bad_token_has_a_challenge_and_then_fails_whatever_comes",
    ),
    Mutation(
        "B129", _AUTHENTICATOR, "    return min(remaining_ms, max_reauth_ms or", "    return min(max_reauth_ms or",
        f"{_TEST_SESSIONS}::test_session_ends_with_its_token_for_a_client_that_has_no_other",
    ),
    Mutation(
        "B129", _AUTHENTICATOR, "max_reauth_ms or _LONGEST_LIFETIME_MS, _LONGEST_LIFETIME_MS)",
        "_LONGEST_LIFETIME_MS)",
        f"{_TEST_AUTHENTICATOR}::test_session_ends_with_the_setting_or_the_token_whichever_is_first",
    ),
    Mutation(
        "B129", _SERVER, "max(1, outcome.expires_ms - self._wall_clock())", "outcome.expires_ms - self._wall_clock()",
        f"{_TEST_SERVER}::test_token_within_the_skew_after_its_end_makes_a_session_that_ends",
    ),
    Mutation(
        "B129", _JWKS, "        if self._failures == 0 and now >= self._early_after:\n",
        "        if self._failures == 0:\n",
        f"{_TEST_JWKS}::test_missing_keys_of_any_number_cause_one_fetch_a_minute",
    ),
    Mutation(
        "B129", _JWKS, "            self._failures += 1\n",
        "            self._failures += 1\n            self.keys = ()\n",
        f"{_TEST_JWKS}::test_fetch_that_fails_keeps_the_last_good_keys_and_is_retried_with_backoff",
    ),
    Mutation(
        "B129", _CONFIG, "    _require_check(config, name, _AUDIENCE, _ANY_AUDIENCE)\n", "",
        f"{_TEST_CONFIG}::test_setting_that_cannot_work_is_refused_without_its_secrets",
    ),
    Mutation(
        "B129", _CONFIG, "    if not allows_files:\n", "    if False:\n",
        f"{_TEST_CONFIG}::test_setting_that_cannot_work_is_refused_without_its_secrets",
    ),
    Mutation(
        "B129", _EXCHANGE, "    finally:\n        _interrupt(connection)\n", "",
        f"{_TEST_EXCHANGE}::test_slow_response_ends_in_time_and_so_does_its_thread",
    ),
)  # fmt: skip
