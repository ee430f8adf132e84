"""OAUTHBEARER on the server: its exchange with a client."""

import pytest

from oncelog.broker.security.oauth_server import OauthServer
from oncelog.broker.security.sasl_server import Authenticated, Challenge, Refusal
from oncelog.broker.security.token_verifier import BadToken, TokenOutcome, VerifiedToken
from oncelog.protocol.sasl.oauthbearer import END_OF_CLIENT, INVALID_TOKEN, encode_oauth_first

NOW_MS = 10_000
RIGHT = encode_oauth_first("right", {})
WRONG = encode_oauth_first("wrong", {})


def verify(token: str) -> TokenOutcome:
    return VerifiedToken("alice", 15_000) if token == "right" else BadToken("it has expired")


def server(now_ms: int = NOW_MS) -> OauthServer:
    return OauthServer(verify, lambda: now_ms)


def test_good_token_is_accepted_until_it_expires() -> None:
    assert server().respond(RIGHT) == Authenticated("alice", remaining_ms=5_000)


def test_token_within_the_skew_after_its_end_makes_a_session_that_ends() -> None:
    assert server(20_000).respond(RIGHT) == Authenticated("alice", remaining_ms=1)


@pytest.mark.parametrize("second", [END_OF_CLIENT, RIGHT, b"", b"\0"], ids=["end", "token", "empty", "other"])
def test_bad_token_has_a_challenge_and_then_fails_whatever_comes(second: bytes) -> None:
    one = server()
    assert one.respond(WRONG) == Challenge(INVALID_TOKEN)
    refused = one.respond(second)
    assert refused == Refusal('{"status":"invalid_token"}', "a bad token: it has expired")


def test_authorization_id_must_be_the_user_of_the_token() -> None:
    named = RIGHT.replace(b"n,,", b"n,a=alice,")
    assert server().respond(named) == Authenticated("alice", remaining_ms=5_000)
    refused = server().respond(RIGHT.replace(b"n,,", b"n,a=bob,"))
    assert isinstance(refused, Refusal)
    assert "authorization id that is different" in refused.message
    assert "bob" not in f"{refused}"


@pytest.mark.parametrize("message", [b"", END_OF_CLIENT, b"\0alice\0secret", b"n,,\x01auth=Bearer right\x01"])
def test_malformed_message_fails_at_once(message: bytes) -> None:
    refused = server().respond(message)
    assert isinstance(refused, Refusal)
    assert refused.message.endswith("invalid credentials with SASL mechanism OAUTHBEARER")
    assert "secret" not in f"{refused}"
