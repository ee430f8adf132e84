"""Delegation tokens through the admin client: what is sent, and what comes of the responses."""

from typing import Final

import pytest

from oncelog.clients.admin.tokens import DelegationToken, create_token, describe_tokens, expire_token, renew_token
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from oncelog.protocol.principal import Principal
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HMAC: Final = bytes(range(64))


class Tokens:
    """A broker with two tokens, which refuses every other hmac."""

    def create(self, request: Message) -> Message:
        assert isinstance(request, CreateDelegationTokenRequest)
        return CreateDelegationTokenResponse(
            principal_type="User",
            principal_name=request.owner_principal_name or "alice",
            token_requester_principal_type="User",
            token_requester_principal_name="alice",
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="t",
            hmac=HMAC,
        )

    def renew(self, request: Message) -> Message:
        assert isinstance(request, RenewDelegationTokenRequest)
        if request.hmac != HMAC:
            return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=request.renew_period_ms)

    def expire(self, request: Message) -> Message:
        assert isinstance(request, ExpireDelegationTokenRequest)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=request.expiry_time_period_ms)

    def describe(self, request: Message) -> Message:
        assert isinstance(request, DescribeDelegationTokenRequest)
        renewer = DescribedDelegationTokenRenewer(principal_type="User", principal_name="bob")
        new = DescribedDelegationToken(
            principal_type="User",
            principal_name="alice",
            token_id="new",
            issue_timestamp=9,
            hmac=HMAC,
            renewers=[renewer],
        )
        old = DescribedDelegationToken(principal_type="User", principal_name="alice", token_id="old", issue_timestamp=1)
        return DescribeDelegationTokenResponse(tokens=[new, old])

    def broker(self) -> ScriptedBroker:
        return ScriptedBroker(
            {
                CreateDelegationTokenRequest: self.create,
                RenewDelegationTokenRequest: self.renew,
                ExpireDelegationTokenRequest: self.expire,
                DescribeDelegationTokenRequest: self.describe,
            }
        )


@in_virtual_time
async def test_created_token_has_its_secret_and_does_not_show_it() -> None:
    async with cluster_of(broker := Tokens().broker()) as cluster:
        token = await create_token(cluster, owner=BOB, renewers=[ALICE], max_lifetime_ms=5)
        assert isinstance(token, DelegationToken)
        assert (token.token_id, token.hmac, token.information.owner) == ("t", HMAC, BOB)
        assert (token.information.requester, token.information.renewers) == (ALICE, (ALICE,))
        assert token.password.startswith("AAECAwQF")
        assert not any(shown in repr(token) for shown in ("AAECAwQF", "x01", "hmac"))
        (request,) = broker.seen(CreateDelegationTokenRequest)
        assert isinstance(request, CreateDelegationTokenRequest)
        assert (request.owner_principal_type, request.owner_principal_name) == ("User", "bob")
        assert request.max_lifetime_ms == 5


@in_virtual_time
async def test_periods_have_the_defaults_of_kafka() -> None:
    async with cluster_of(broker := Tokens().broker()) as cluster:
        await create_token(cluster)
        (request,) = broker.seen(CreateDelegationTokenRequest)
        assert isinstance(request, CreateDelegationTokenRequest)
        assert (request.max_lifetime_ms, request.owner_principal_name) == (-1, None)
        assert [await renew_token(cluster, HMAC), await renew_token(cluster, HMAC, period_ms=7)] == [-1, 7]
        assert [await expire_token(cluster, HMAC), await expire_token(cluster, HMAC, period_ms=0)] == [-1, 0]


@in_virtual_time
async def test_refusal_raises_its_error() -> None:
    async with cluster_of(Tokens().broker()) as cluster:
        with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN_NOT_FOUND"):
            await renew_token(cluster, b"other")


@in_virtual_time
async def test_described_tokens_are_ordered_by_their_age() -> None:
    async with cluster_of(broker := Tokens().broker()) as cluster:
        found = await describe_tokens(cluster)
        assert [each.token_id for each in found] == ["old", "new"]
        assert found[1].information.renewers == (BOB,)
        assert found[1].information.requester == ALICE
        await describe_tokens(cluster, [ALICE])
        everything, of_alice = broker.seen(DescribeDelegationTokenRequest)
        assert isinstance(everything, DescribeDelegationTokenRequest)
        assert isinstance(of_alice, DescribeDelegationTokenRequest)
        assert everything.owners is None
        assert [each.principal_name for each in of_alice.owners or ()] == ["alice"]
