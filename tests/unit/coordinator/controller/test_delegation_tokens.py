"""Delegation tokens: which requests about one succeed, and what it is then."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.delegation_tokens import (
    Decision,
    TokenLimits,
    TokenRequest,
    expire,
    issue,
    new_token_id,
    remove_if_expired,
    renew,
    token_hmac,
)
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import Principal

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
NOW = 1_700_000_000_000
LIMITS = TokenLimits(max_lifetime_ms=7_000, expiry_time_ms=1_000)
TOKEN = TokenInformation(
    token_id="t",
    owner=ALICE,
    requester=CAROL,
    renewers=(BOB,),
    issue_timestamp_ms=NOW,
    max_timestamp_ms=NOW + 7_000,
    expiry_timestamp_ms=NOW + 1_000,
)
EXPIRED = replace(TOKEN, expiry_timestamp_ms=NOW - 1)
LAST_MS = 2**63 - 1


def request(owner: Principal = ALICE, renewers: tuple[Principal, ...] = (), max_lifetime_ms: int = -1) -> TokenRequest:
    return TokenRequest(owner=owner, requester=ALICE, renewers=renewers, max_lifetime_ms=max_lifetime_ms)


def issued(max_lifetime_ms: int, limits: TokenLimits = LIMITS) -> TokenInformation:
    token = issue(request(max_lifetime_ms=max_lifetime_ms), limits, "t", NOW)
    assert isinstance(token, TokenInformation)
    return token


@pytest.mark.parametrize(
    ("max_lifetime_ms", "expires", "ends"),
    [(-1, 1_000, 7_000), (0, 1_000, 7_000), (500, 500, 500), (3_000, 1_000, 3_000), (9_000, 1_000, 7_000)],
)
def test_new_token_is_valid_as_long_as_requested_within_the_limits(
    max_lifetime_ms: int, expires: int, ends: int
) -> None:
    token = issued(max_lifetime_ms)
    assert (token.expiry_timestamp_ms - NOW, token.max_timestamp_ms - NOW) == (expires, ends)
    assert (token.owner, token.requester, token.issue_timestamp_ms) == (ALICE, ALICE, NOW)


@pytest.mark.parametrize("other", [Principal("Group", "alice"), Principal("", "alice"), Principal("user", "alice")])
def test_principal_of_another_type_is_no_owner_and_no_renewer(other: Principal) -> None:
    for refused in (request(owner=other), request(renewers=(BOB, other))):
        assert issue(refused, LIMITS, "t", NOW) is ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    ("token", "principal", "period_ms", "expected"),
    [
        (TOKEN, ALICE, -1, 1_000),
        (TOKEN, BOB, 0, 1_000),
        (TOKEN, ALICE, 10, 10),
        (TOKEN, ALICE, 5_000, 1_000),
        (replace(TOKEN, max_timestamp_ms=NOW + 300), ALICE, 500, 300),
        (TOKEN, CAROL, -1, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (EXPIRED, ALICE, -1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (EXPIRED, CAROL, -1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (replace(TOKEN, max_timestamp_ms=NOW - 1), ALICE, -1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (replace(TOKEN, expiry_timestamp_ms=NOW), ALICE, -1, 1_000),
    ],
)
def test_renewal_is_decided_as_in_kafka(
    token: TokenInformation, principal: Principal, period_ms: int, expected: int | ErrorCode
) -> None:
    assert shown(renew(token, principal, period_ms, LIMITS, NOW), token) == expected


@pytest.mark.parametrize(
    ("token", "principal", "period_ms", "expected"),
    [
        (TOKEN, ALICE, 0, 0),
        (TOKEN, BOB, 5_000, 5_000),
        (TOKEN, ALICE, 9_000, 7_000),
        (TOKEN, ALICE, LAST_MS, 7_000),
        (TOKEN, ALICE, -1, None),
        (EXPIRED, ALICE, -1, None),
        (EXPIRED, ALICE, 0, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (EXPIRED, CAROL, 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (TOKEN, CAROL, -1, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
    ],
)
def test_expiry_is_decided_as_in_kafka(
    token: TokenInformation, principal: Principal, period_ms: int, expected: int | ErrorCode | None
) -> None:
    assert shown(expire(token, principal, period_ms, NOW), token) == expected


def shown(decision: Decision, before: TokenInformation) -> int | ErrorCode | None:
    """The milliseconds until a token expires, when nothing else of it has changed."""
    if not isinstance(decision, TokenInformation):
        return decision
    assert replace(decision, expiry_timestamp_ms=before.expiry_timestamp_ms) == before
    return decision.expiry_timestamp_ms - NOW


def test_token_is_described_by_its_owner_requester_and_renewers() -> None:
    assert [TOKEN.concerns(each) for each in (ALICE, BOB, CAROL, Principal("User", "dave"))] == [True] * 3 + [False]
    assert [TOKEN.may_renew(each) for each in (ALICE, BOB, CAROL)] == [True, True, False]


def test_hmac_of_a_token_is_that_of_kafka() -> None:
    """That of ``javax.crypto.Mac`` with HmacSHA512, which Kafka calls."""
    secret = token_hmac(b"sesame-open", "ua5cey91Qx2ffVPJ39yBcw")
    assert secret.hex().startswith("35f446ac77d1067f134aefebc1a27b55eeabb33d")
    assert len(secret) == 64


def test_token_ids_are_random_uuids_without_a_leading_hyphen() -> None:
    rng = random.Random(1)
    ids = [new_token_id(rng) for _ in range(2_000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in ids)


periods = st.one_of(st.integers(-2, 20_000), st.integers(-(2**63), LAST_MS))
steps = st.lists(st.tuples(st.sampled_from("rx"), periods, st.integers(0, 3_000)), max_size=20)


@given(
    max_lifetime_ms=periods,
    limits=st.builds(TokenLimits, max_lifetime_ms=st.integers(1, LAST_MS), expiry_time_ms=st.integers(1, LAST_MS)),
    history=steps,
)
def test_token_never_outlives_its_maximum_and_never_revives(
    max_lifetime_ms: int, limits: TokenLimits, history: list[tuple[str, int, int]]
) -> None:
    now, token = NOW, issued(max_lifetime_ms, limits)
    end = token.max_timestamp_ms
    assert end - NOW <= limits.max_lifetime_ms
    assert max_lifetime_ms <= 0 or end - NOW <= max_lifetime_ms
    for kind, period_ms, elapsed_ms in history:
        now += elapsed_ms
        was_expired = token.is_expired(now)
        decision = renew(token, ALICE, period_ms, limits, now) if kind == "r" else expire(token, ALICE, period_ms, now)
        if decision is None:
            assert kind == "x"
            assert period_ms < 0
            return
        if was_expired:
            assert decision is ErrorCode.DELEGATION_TOKEN_EXPIRED
            assert remove_if_expired(token, now) is None
            continue
        assert isinstance(decision, TokenInformation)
        token = decision
        assert remove_if_expired(token, now) == token
        assert now <= token.expires_at_ms == token.expiry_timestamp_ms <= end <= LAST_MS
        assert token.max_timestamp_ms == end
