"""The states of authentication, without a connection."""

import pytest

from oncelog.broker.security.plain_server import PlainServer
from oncelog.broker.security.sasl_authenticator import NEXT_STATES, Mechanism, SaslAuthenticator, SaslState
from oncelog.broker.security.sasl_server import Authenticated, SaslStep
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

USERS = {"alice": "a", "bob": "b"}


class Expiring:
    """Accepts every token, for some time."""

    def __init__(self, remaining_ms: int | None) -> None:
        self.remaining_ms = remaining_ms

    def respond(self, token: bytes) -> SaslStep:
        return Authenticated("alice", remaining_ms=self.remaining_ms)


def authenticator(max_reauth_ms: int = 0) -> SaslAuthenticator:
    mechanism = Mechanism(lambda: PlainServer(USERS), max_reauth_ms)
    return SaslAuthenticator({"PLAIN": mechanism, "OTHER": mechanism})


def handshake(authenticator: SaslAuthenticator, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    reply = authenticator.handshake(SaslHandshakeRequest(mechanism=mechanism), version)
    assert isinstance(reply.response, SaslHandshakeResponse)
    return reply.response


def log_in(authenticator: SaslAuthenticator, token: bytes, now: float = 0.0) -> SaslAuthenticateResponse:
    reply = authenticator.authenticate(token, now)
    assert isinstance(reply.response, SaslAuthenticateResponse)
    assert bool(reply.ends) == (reply.response.error_code != ErrorCode.NONE)
    return reply.response


def test_failed_is_the_only_state_without_a_next_one() -> None:
    assert [state for state in SaslState if not NEXT_STATES[state]] == [SaslState.FAILED]


def test_session_has_the_lifetime_of_its_mechanism() -> None:
    one = authenticator(max_reauth_ms=5_000)
    assert handshake(one).mechanisms == ["PLAIN", "OTHER"]
    assert log_in(one, b"\0alice\0a", now=3.0).session_lifetime_ms == 5_000
    assert one.state is SaslState.COMPLETE
    assert one.session is not None
    assert (one.session.user, one.session.began_at) == ("alice", 3.0)


@pytest.mark.parametrize(
    ("max_reauth_ms", "remaining_ms", "lifetime_ms"),
    [
        (0, None, 0),
        (5_000, None, 5_000),
        (0, 7_000, 7_000),
        (5_000, 7_000, 5_000),
        (9_000, 7_000, 7_000),
        (5_000, 1, 1),
        (0, 10**15, 365 * 86_400_000),
        (10**15, 10**15, 365 * 86_400_000),
    ],
)
def test_session_ends_with_the_setting_or_the_token_whichever_is_first(
    max_reauth_ms: int, remaining_ms: int | None, lifetime_ms: int
) -> None:
    one = SaslAuthenticator({"OAUTHBEARER": Mechanism(lambda: Expiring(remaining_ms), max_reauth_ms)})
    handshake(one, "OAUTHBEARER")
    assert log_in(one, b"t").session_lifetime_ms == lifetime_ms
    assert one.may_begin_again(2.0) == (lifetime_ms > 0)


@pytest.mark.parametrize("mechanism", ["plain", "GSSAPI", "", "PLAIN "])
def test_mechanism_that_is_not_enabled_is_refused_with_those_that_are(mechanism: str) -> None:
    one = authenticator()
    response = handshake(one, mechanism)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "OTHER"]
    assert one.state is SaslState.FAILED


def test_raw_token_has_a_raw_response_and_a_failure_has_none() -> None:
    one = authenticator()
    handshake(one, version=0)
    assert one.state is SaslState.RAW_TOKEN
    assert one.authenticate_raw(b"\0alice\0a", 0.0).response == b""
    other = authenticator()
    handshake(other, version=0)
    reply = other.authenticate_raw(b"\0alice\0b", 0.0)
    assert reply.response is None
    assert reply.ends


def test_client_may_begin_again_at_once_then_after_a_second_and_only_if_its_session_ends() -> None:
    """As in Kafka, where the second counts from one re-authentication to the next."""
    endless, ending = authenticator(), authenticator(max_reauth_ms=60_000)
    for one in (endless, ending):
        assert not one.may_begin_again(100.0)
        handshake(one)
        log_in(one, b"\0alice\0a", now=10.0)
    assert not endless.may_begin_again(100.0)
    assert ending.may_begin_again(10.0)
    handshake(ending)
    log_in(ending, b"\0alice\0a", now=10.1)
    assert not ending.may_begin_again(11.0)
    assert ending.may_begin_again(11.1)


def test_same_user_by_the_same_mechanism_begins_a_new_session() -> None:
    one = authenticator(max_reauth_ms=60_000)
    for now in (10.0, 20.0):
        handshake(one)
        assert log_in(one, b"\0alice\0a", now).error_code == ErrorCode.NONE
    assert one.session is not None
    assert one.session.began_at == 20.0


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", b"\0bob\0b", "Cannot change principals during re-authentication from User:alice: User:bob"),
        ("OTHER", b"\0alice\0a", "SASL mechanism 'OTHER' requested by client is not supported for re-authentication "
                                 "of mechanism 'PLAIN'"),
        ("PLAIN", b"\0alice\0b", "Authentication failed: Invalid username or password"),
    ],
)  # fmt: skip
def test_other_user_or_mechanism_or_password_ends_the_connection(mechanism: str, token: bytes, message: str) -> None:
    one = authenticator(max_reauth_ms=60_000)
    handshake(one)
    log_in(one, b"\0alice\0a", 10.0)
    handshake(one, mechanism)
    response = log_in(one, token, 20.0)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert one.state is SaslState.FAILED
