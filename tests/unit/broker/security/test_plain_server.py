"""PLAIN on the server."""

import pytest

from oncelog.broker.security.plain_server import PlainServer
from oncelog.broker.security.sasl_server import Authenticated, Refusal, SaslStep

USERS = {"alice": "wonderland", "bob": "b"}


def step(token: bytes) -> SaslStep:
    return PlainServer(USERS).respond(token)


@pytest.mark.parametrize("token", [b"\0alice\0wonderland", b"alice\0alice\0wonderland"])
def test_right_password_is_accepted(token: bytes) -> None:
    assert step(token) == Authenticated("alice")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonderlan", "Authentication failed: Invalid username or password"),
        (b"\0alice\0b", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0wonderland", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0wonderland", "Authentication failed: Client requested an authorization id that is different "
                                    "from username"),
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0\0wonderland", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0wonderland", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonderland\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0x", "Invalid SASL/PLAIN response: expected UTF-8"),
    ],
)  # fmt: skip
def test_other_token_is_refused_with_the_text_of_kafka(token: bytes, message: str) -> None:
    refused = step(token)
    assert isinstance(refused, Refusal)
    assert refused.message == message


@pytest.mark.parametrize("token", [b"\0hunter2\0alice", b"\0alice\0hunter2", b"hunter2", b"\0hunter2"])
def test_reason_for_the_log_contains_nothing_that_may_be_a_password(token: bytes) -> None:
    refused = step(token)
    assert isinstance(refused, Refusal)
    assert "hunter2" not in f"{refused}"
