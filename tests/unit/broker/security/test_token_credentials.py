"""SCRAM by delegation token on the server: who a client is, how long, and what others learn."""

import base64
import random
from dataclasses import replace
from typing import Final

import pytest

from oncelog.broker.security.sasl_authenticator import Mechanism, SaslAuthenticator
from oncelog.broker.security.sasl_server import Authenticated, Challenge, Refusal, SaslStep
from oncelog.broker.security.scram_server import ScramServer
from oncelog.broker.security.token_credentials import TokenCredentials
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.protocol.principal import Principal
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism
from oncelog.protocol.sasl.scram_messages import parse_server_first
from tests.unit.broker.security.scram_client import ScramClient, credential_of

ID: Final = "ua5cey91Qx2ffVPJ39yBcw"
HMAC: Final = bytes(range(64))
PASSWORD: Final = base64.b64encode(HMAC).decode()
NOW_MS: Final = 1_700_000_000_000
TOKEN: Final = TokenInformation(
    token_id=ID,
    owner=Principal("User", "alice"),
    requester=Principal("User", "admin"),
    renewers=(),
    issue_timestamp_ms=NOW_MS,
    max_timestamp_ms=NOW_MS + 9_000,
    expiry_timestamp_ms=NOW_MS + 5_000,
)
MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda each: each.name)


class Known:
    """The tokens of a broker, and its clock."""

    def __init__(self) -> None:
        self.tokens = {ID: TOKEN}
        self.now_ms = NOW_MS
        self.computed = 0
        self.credentials = TokenCredentials(self, lambda: self.now_ms)  # type: ignore[arg-type]

    def hmac_of(self, token_id: str) -> bytes:
        self.computed += 1
        return HMAC

    def server(self, mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramServer:
        users = {ID: credential_of(mechanism, "another"), "alice": credential_of(mechanism, "wonderland")}
        return ScramServer(mechanism, users.get, self.credentials, rng=random.Random(1), fake_salt_key=b"key")


def step_of(
    exchange: ScramServer,
    name: str = ID,
    password: str = PASSWORD,
    mechanism: ScramMechanism = SCRAM_SHA_256,
    is_token: bool = True,
) -> SaslStep:
    """What comes of an exchange with a client."""
    client = ScramClient(mechanism, name, password, is_token=is_token)
    first = exchange.respond(client.first)
    assert isinstance(first, Challenge), first
    return exchange.respond(client.final(first.token))


@MECHANISMS
def test_client_with_the_hmac_of_a_token_is_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    step = step_of(Known().server(mechanism), mechanism=mechanism)
    assert isinstance(step, Authenticated)
    assert (step.user, step.remaining_ms, step.is_delegated) == ("alice", 5_000, True)


def test_lifetime_ends_no_later_than_the_maximum() -> None:
    known = Known()
    known.tokens[ID] = replace(TOKEN, expiry_timestamp_ms=NOW_MS + 99_000)
    step = step_of(known.server())
    assert isinstance(step, Authenticated)
    assert step.remaining_ms == 9_000


@pytest.mark.parametrize(
    ("name", "password", "is_token"),
    [
        (ID, "another", True),
        (ID, PASSWORD, False),
        ("alice", "wonderland", True),
        ("alice", PASSWORD, True),
        ("unknown", PASSWORD, True),
    ],
)
def test_password_of_a_user_is_none_of_a_token_and_the_reverse(name: str, password: str, is_token: bool) -> None:
    assert isinstance(step_of(Known().server(), name, password, is_token=is_token), Refusal)


def test_expired_token_is_refused_like_an_unknown_one() -> None:
    known = Known()
    known.now_ms = NOW_MS + 5_000
    refusals = [step_of(known.server(), name) for name in (ID, "unknown")]
    assert refusals[0] == refusals[1]
    assert isinstance(refusals[0], Refusal)
    assert ID not in refusals[0].reason


def test_token_that_expires_or_is_removed_between_two_messages_is_refused() -> None:
    for removed in (True, False):
        known = Known()
        exchange, client = known.server(), ScramClient(SCRAM_SHA_256, ID, PASSWORD, is_token=True)
        first = exchange.respond(client.first)
        assert isinstance(first, Challenge)
        if removed:
            known.tokens.clear()
        else:
            known.now_ms += 5_000
        assert isinstance(exchange.respond(client.final(first.token)), Refusal)


def test_salt_does_not_say_whether_a_token_exists() -> None:
    known, unknown = Known(), Known()
    unknown.tokens.clear()
    salts = set()
    for each in (known, unknown):
        first = each.server().respond(ScramClient(SCRAM_SHA_256, ID, PASSWORD, is_token=True).first)
        assert isinstance(first, Challenge)
        salts.add((parse_server_first(first.token).salt, parse_server_first(first.token).iterations))
    assert len(salts) == 1


def test_password_of_a_token_is_salted_once_and_forgotten_with_it() -> None:
    known = Known()
    for _ in range(3):
        assert isinstance(step_of(known.server()), Authenticated)
    assert known.computed == 1
    for number in range(20):
        token_id = f"t{number}"
        known.tokens = {token_id: replace(TOKEN, token_id=token_id)}
        assert isinstance(step_of(known.server(), token_id), Authenticated)
    known.tokens = {ID: TOKEN}
    assert isinstance(step_of(known.server()), Authenticated)
    assert known.computed == 22


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 5_000), (3_000, 3_000), (8_000, 5_000)])
def test_session_has_the_shorter_lifetime_of_setting_and_token(max_reauth_ms: int, lifetime_ms: int) -> None:
    known = Known()
    authenticator = SaslAuthenticator({"SCRAM-SHA-256": Mechanism(known.server, max_reauth_ms)})
    authenticator.handshake(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    client = ScramClient(SCRAM_SHA_256, ID, PASSWORD, is_token=True)
    first = authenticator.authenticate(client.first, 0.0).response
    assert isinstance(first, SaslAuthenticateResponse)
    last = authenticator.authenticate(client.final(first.auth_bytes), 0.0).response
    assert isinstance(last, SaslAuthenticateResponse)
    assert last.session_lifetime_ms == lifetime_ms
    session = authenticator.session
    assert session is not None
    assert (session.user, session.lifetime_ms, session.is_delegated) == ("alice", lifetime_ms, True)


def test_broker_without_tokens_refuses_them_at_the_proof() -> None:
    exchange = ScramServer(SCRAM_SHA_256, lambda user: None, rng=random.Random(1), fake_salt_key=b"key")
    assert isinstance(step_of(exchange), Refusal)
