"""SCRAM on the server: which clients it accepts, and what the others learn."""

import random

import pytest

from oncelog.broker.security.sasl_server import Authenticated, Challenge, Refusal
from oncelog.broker.security.scram_server import ScramServer
from oncelog.protocol.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramMechanism,
    server_signature,
    signed_text,
)
from oncelog.protocol.sasl.scram_messages import parse_client_final, parse_server_final, parse_server_first
from tests.unit.broker.security.scram_client import NONCE, ScramClient, credential_of

MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda each: each.name)
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


def server(mechanism: ScramMechanism = SCRAM_SHA_256, *, key: bytes = b"key", seed: int = 1) -> ScramServer:
    users = {"alice": credential_of(mechanism, "wonderland")}
    return ScramServer(mechanism, users.get, rng=random.Random(seed), fake_salt_key=key)


def challenge(exchange: ScramServer, token: bytes) -> bytes:
    step = exchange.respond(token)
    assert isinstance(step, Challenge), step
    return step.token


@MECHANISMS
def test_right_password_is_accepted_and_the_server_proves_itself(mechanism: ScramMechanism) -> None:
    exchange, client = server(mechanism), ScramClient(mechanism, "alice", "wonderland")
    server_first = challenge(exchange, client.first)
    final = client.final(server_first)
    step = exchange.respond(final)
    assert isinstance(step, Authenticated)
    assert step.user == "alice"
    signed = signed_text(client.first[3:], server_first, parse_client_final(final).without_proof)
    key = credential_of(mechanism, "wonderland").server_key
    assert parse_server_final(step.token) == server_signature(mechanism, key, signed)


@MECHANISMS
def test_wrong_password_is_refused(mechanism: ScramMechanism) -> None:
    exchange, client = server(mechanism), ScramClient(mechanism, "alice", "wrong")
    step = exchange.respond(client.final(challenge(exchange, client.first)))
    assert isinstance(step, Refusal)
    assert step.message == INVALID.replace("SCRAM-SHA-256", mechanism.name)
    assert step.reason == "a wrong password of user alice"


def test_unknown_user_is_refused_at_its_proof_like_a_wrong_password() -> None:
    exchange, client = server(), ScramClient(SCRAM_SHA_256, "mallory", "wonderland")
    step = exchange.respond(client.final(challenge(exchange, client.first)))
    assert isinstance(step, Refusal)
    assert step.message == INVALID
    assert "mallory" not in step.reason


def first_message(user: str, **options: object) -> tuple[bytes, int]:
    exchange = server(**options)  # type: ignore[arg-type]
    first = parse_server_first(challenge(exchange, ScramClient(SCRAM_SHA_256, user, "x").first))
    return first.salt, first.iterations


def test_salt_of_unknown_user_is_always_the_same_and_depends_on_name_and_key() -> None:
    salt, iterations = first_message("mallory", seed=1)
    assert first_message("mallory", seed=2) == (salt, iterations)
    assert iterations == MIN_ITERATIONS
    assert salt.isalnum()
    assert first_message("trudy")[0] != salt
    assert first_message("mallory", key=b"another")[0] != salt


def test_nonce_of_the_server_differs_between_exchanges() -> None:
    nonces = set()
    rng = random.Random(1)
    for _ in range(3):
        exchange = ScramServer(SCRAM_SHA_256, lambda user: None, rng=rng, fake_salt_key=b"key")
        nonce = parse_server_first(challenge(exchange, ScramClient(SCRAM_SHA_256, "a", "b").first)).nonce
        assert nonce.startswith(NONCE)
        assert len(nonce) >= len(NONCE) + 20
        nonces.add(nonce)
    assert len(nonces) == 3


@pytest.mark.parametrize("change", ["another", "shorter", "longer", "client's alone"])
def test_other_nonce_in_the_final_message_is_refused_with_a_right_password(change: str) -> None:
    exchange, client = server(), ScramClient(SCRAM_SHA_256, "alice", "wonderland")
    server_first = challenge(exchange, client.first)
    nonce = parse_server_first(server_first).nonce
    changed = {"another": nonce[::-1], "shorter": nonce[:-1], "longer": nonce + "x", "client's alone": NONCE}[change]
    step = exchange.respond(client.final(server_first, nonce=changed))
    assert isinstance(step, Refusal)
    assert "nonce" in step.reason


def test_nonce_that_repeats_the_client_part_is_accepted_with_a_right_password_alone() -> None:
    """As librdkafka before 2.6.1 sends it, on purpose: the proof covers the server's nonce in either form."""
    for password, outcome in (("wonderland", Authenticated), ("looking-glass", Refusal)):
        exchange, client = server(), ScramClient(SCRAM_SHA_256, "alice", password)
        server_first = challenge(exchange, client.first)
        nonce = NONCE + parse_server_first(server_first).nonce
        assert isinstance(exchange.respond(client.final(server_first, nonce=nonce)), outcome)


@pytest.mark.parametrize("header", [b"y,,", b"n,a=alice,", b"n,,x"])
def test_other_channel_binding_header_in_the_final_message_is_refused(header: bytes) -> None:
    exchange, client = server(), ScramClient(SCRAM_SHA_256, "alice", "wonderland")
    step = exchange.respond(client.final(challenge(exchange, client.first), header=header))
    assert isinstance(step, Refusal)
    assert "channel binding" in step.reason


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_other_authorization_id_is_refused_before_a_user_is_looked_for(user: str) -> None:
    step = server().respond(f"n,a=bob,n={user},r=abc".encode())
    assert isinstance(step, Refusal)
    assert step.message == "Authentication failed: Client requested an authorization id that is different from username"


def test_own_name_as_authorization_id_is_accepted() -> None:
    assert isinstance(server().respond(b"n,a=alice,n=alice,r=abc"), Challenge)


@pytest.mark.parametrize("message", [b"", b"\0", b"y,,n=alice,r=abc", b"n,,m=x,n=alice,r=abc", b"n,,n=alice"])
def test_malformed_first_message_is_refused(message: bytes) -> None:
    step = server().respond(message)
    assert isinstance(step, Refusal)
    assert step.message == INVALID


def test_malformed_final_message_is_refused() -> None:
    exchange, client = server(), ScramClient(SCRAM_SHA_256, "alice", "wonderland")
    challenge(exchange, client.first)
    assert isinstance(exchange.respond(b"c=biws,r=x"), Refusal)
