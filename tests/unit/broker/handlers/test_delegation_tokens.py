"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken on a whole broker."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from oncelog.broker.dispatch.request import ANONYMOUS, Principal, RequestContext
from oncelog.broker.handlers.create_delegation_token import handle_create_delegation_token
from oncelog.broker.handlers.describe_configs import handle_describe_configs
from oncelog.broker.handlers.describe_delegation_token import handle_describe_delegation_token
from oncelog.broker.handlers.expire_delegation_token import handle_expire_delegation_token
from oncelog.broker.handlers.renew_delegation_token import handle_renew_delegation_token
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.deciding import Deciding
from tests.unit.broker.handlers.administration import after_power_loss, ask, new_disk, running_broker
from tests.unit.broker.outcomes import without_shape
from tests.unit.broker.replica_side import new_connection
from tests.unit.broker.test_turns_of_all_handlers import MOST_LINES
from tests.unit.broker.turns import longest_turn

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
KEY: Final = "sesame-open"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL: Final = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "plain_sasl_jaas_config": f'{MODULE} username="broker" password="b" user_broker="b";',
}
WITH_TOKENS: Final = {**SASL, "delegation_token_secret_key": KEY}
NOW_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
MISMATCH: Final = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class Clock:
    """The wall clock of the broker."""

    now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Allows(Deciding):
    """An ``Authorizer`` that allows some things and nothing else."""

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self._allowed = allowed

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) in self._allowed


@asynccontextmanager
async def broker_with_tokens(
    clock: Clock | None = None, disk: SimDisk | None = None, **settings: str
) -> AsyncIterator[Broker]:
    async with running_broker(disk, clock or Clock(), **WITH_TOKENS, **settings) as broker:
        broker.authorizer = Allows()
        yield broker


async def create(
    broker: Broker, principal: Principal = ALICE, *, renewers: Collection[Principal] = (), **fields: Any
) -> CreateDelegationTokenResponse:
    names = [CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers]
    request = CreateDelegationTokenRequest(renewers=names, **{"max_lifetime_ms": -1, **fields})
    return await ask(
        broker, handle_create_delegation_token, request, CreateDelegationTokenResponse, principal=principal
    )


async def renew(broker: Broker, hmac: bytes, principal: Principal = ALICE, period_ms: int = -1) -> int | ErrorCode:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    response = await ask(
        broker, handle_renew_delegation_token, request, RenewDelegationTokenResponse, principal=principal
    )
    return ErrorCode(response.error_code) if response.error_code else response.expiry_timestamp_ms


async def expire(broker: Broker, hmac: bytes, principal: Principal = ALICE, period_ms: int = -1) -> int | ErrorCode:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    response = await ask(
        broker, handle_expire_delegation_token, request, ExpireDelegationTokenResponse, principal=principal
    )
    return ErrorCode(response.error_code) if response.error_code else response.expiry_timestamp_ms


async def describe(
    broker: Broker, request: DescribeDelegationTokenRequest, principal: Principal = ALICE
) -> DescribeDelegationTokenResponse:
    return await ask(
        broker, handle_describe_delegation_token, request, DescribeDelegationTokenResponse, principal=principal
    )


async def described(
    broker: Broker, principal: Principal = ALICE, owners: Collection[Principal] | None = None
) -> list[str]:
    """The ids of the tokens that a principal sees."""
    wanted = None
    if owners is not None:
        wanted = [DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
    response = await describe(broker, DescribeDelegationTokenRequest(owners=wanted), principal)
    assert response.error_code == ErrorCode.NONE
    return [token.token_id for token in response.tokens]


async def test_token_is_created_renewed_described_and_removed() -> None:
    clock = Clock()
    async with broker_with_tokens(clock) as broker:
        created = await create(broker, renewers=[BOB])
        assert created.error_code == ErrorCode.NONE
        assert (created.principal_name, created.token_requester_principal_name) == ("alice", "alice")
        assert created.expiry_timestamp_ms == NOW_MS + DAY_MS
        assert created.max_timestamp_ms == NOW_MS + 7 * DAY_MS
        clock.now_ms += 1_000
        assert await renew(broker, created.hmac, BOB) == clock.now_ms + DAY_MS
        assert await expire(broker, created.hmac, period_ms=5_000) == clock.now_ms + 5_000
        assert await described(broker) == [created.token_id]
        assert await expire(broker, created.hmac) == -1
        assert await described(broker) == []
        assert await expire(broker, created.hmac) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await renew(broker, created.hmac) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_token_outlives_a_loss_of_power() -> None:
    disk = new_disk()
    async with broker_with_tokens(disk=disk) as broker:
        created = await create(broker)
        survivor = after_power_loss(disk)
    async with broker_with_tokens(disk=survivor) as broker:
        assert await described(broker) == [created.token_id]
        assert await renew(broker, created.hmac) == NOW_MS + DAY_MS


async def test_token_of_another_owner_needs_permission_for_that_owner() -> None:
    async with broker_with_tokens() as broker:
        of_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        refused = await create(broker, **of_bob)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_id, refused.hmac) == ("bob", "", b"")
        broker.authorizer = Allows((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
        created = await create(broker, **of_bob)
        assert (created.principal_name, created.token_requester_principal_name) == ("bob", "alice")
        assert await described(broker, ALICE) == await described(broker, BOB) == [created.token_id]
        assert await renew(broker, created.hmac, ALICE) is MISMATCH
        assert await renew(broker, created.hmac, BOB) == created.expiry_timestamp_ms


@pytest.mark.parametrize("fields", [{"owner_principal_name": None}, {"owner_principal_type": "User"}])
async def test_owner_without_a_name_is_the_client(fields: dict[str, str | None]) -> None:
    async with broker_with_tokens() as broker:
        assert (await create(broker, **fields)).principal_name == "alice"


async def test_token_is_shown_to_others_only_with_permission() -> None:
    async with broker_with_tokens() as broker:
        first = (await create(broker, ALICE)).token_id
        second = (await create(broker, BOB, renewers=[ALICE])).token_id
        assert await described(broker, CAROL) == []
        assert await described(broker, BOB) == [second]
        assert sorted(await described(broker, ALICE)) == sorted([first, second])
        assert await described(broker, ALICE, owners=[BOB]) == [second]
        assert await described(broker, ALICE, owners=[]) == []
        broker.authorizer = Allows((Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first))
        assert await described(broker, CAROL) == [first]
        broker.authorizer = Allows((Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"))
        assert await described(broker, CAROL) == [second]
        assert await described(broker, CAROL, owners=[Principal("User", "dave")]) == []


async def test_request_that_makes_no_sense_is_refused_with_the_code_of_kafka() -> None:
    async with broker_with_tokens() as broker:
        group = await create(broker, renewers=[Principal("Group", "g")])
        assert group.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        created = await create(broker)
        for hmac in (b"", b"x", created.hmac[:-1], created.token_id.encode()):
            assert await renew(broker, hmac) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await expire(broker, created.hmac, CAROL) is MISMATCH


async def test_owner_of_another_type_than_user_is_refused() -> None:
    async with broker_with_tokens() as broker:
        broker.authorizer = Allows((Operation.CREATE_TOKENS, ResourceType.USER, "Group:alice"))
        refused = await create(broker, owner_principal_type="Group", owner_principal_name="alice")
        assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_expired_token_cannot_be_renewed_and_can_be_removed() -> None:
    clock = Clock()
    async with broker_with_tokens(clock) as broker:
        created = await create(broker, max_lifetime_ms=1_000)
        clock.now_ms += 1_001
        assert await renew(broker, created.hmac) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert await expire(broker, created.hmac, period_ms=0) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert await described(broker) == [created.token_id]
        assert await expire(broker, created.hmac, period_ms=-5) == -5


async def test_tokens_are_limited_in_number() -> None:
    async with broker_with_tokens(oncelog_delegation_tokens_max_count="2") as broker:
        errors = [(await create(broker)).error_code for _ in range(3)]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


async def test_large_token_requests_keep_the_loop_for_milliseconds_only() -> None:
    """In lines of Python, as ``test_turns_of_all_handlers`` counts them without tokens."""
    many = [Principal("User", f"user {number}") for number in range(3_000)]
    async with broker_with_tokens() as broker:
        for number in range(2_000):
            await create(broker, renewers=many[number : number + 10])
        refused, lines = await longest_turn(lambda: create(broker, renewers=many))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert lines <= MOST_LINES
        largest, lines = await longest_turn(lambda: create(broker, renewers=many[:1_000]))
        assert largest.error_code == ErrorCode.NONE
        assert lines <= MOST_LINES
        for owners in ([DescribeDelegationTokenOwner(principal_type="User", principal_name=n) for _, n in many], None):
            request = DescribeDelegationTokenRequest(owners=owners)
            seen, lines = await longest_turn(partial(describe, broker, request))
            assert len(seen.tokens) == 2_001
            assert lines <= MOST_LINES


REQUESTS: Final = (
    (handle_create_delegation_token, CreateDelegationTokenRequest()),
    (handle_renew_delegation_token, RenewDelegationTokenRequest()),
    (handle_expire_delegation_token, ExpireDelegationTokenRequest()),
    (handle_describe_delegation_token, DescribeDelegationTokenRequest(owners=None)),
)


async def errors_of_all(broker: Broker, principal: Principal, *, by_token: bool = False) -> set[int]:
    errors = set()
    for handler, request in REQUESTS:
        for version in range(handler.versions.first, handler.versions.last + 1):
            connection = new_connection()
            connection.principal, connection.is_token_authenticated = principal, by_token
            outcome: Any = without_shape(handler(broker, RequestContext(version, 1, "c", connection), request))
            response = await outcome if hasattr(outcome, "__await__") else outcome
            errors.add(decode(type(response), version, encode(response, version)).error_code)
    return errors


async def test_client_that_a_token_has_authenticated_may_not_request_tokens() -> None:
    async with broker_with_tokens() as broker:
        assert await errors_of_all(broker, ALICE, by_token=True) == {NOT_ALLOWED}
        assert NOT_ALLOWED not in await errors_of_all(broker, ALICE)


async def test_listener_without_authentication_carries_no_tokens() -> None:
    async with running_broker(delegation_token_secret_key=KEY) as broker:
        assert await errors_of_all(broker, ANONYMOUS) == {NOT_ALLOWED}


@pytest.mark.parametrize("settings", [{}, {"delegation_token_secret_key": ""}])
async def test_broker_without_a_key_has_no_tokens(settings: dict[str, str]) -> None:
    async with running_broker(**SASL, **settings) as broker:
        assert await errors_of_all(broker, ALICE) == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
        assert broker.tokens is None


async def test_key_has_its_former_name_too() -> None:
    async with running_broker(**SASL, delegation_token_master_key=KEY) as broker:
        assert broker.config.delegation_token_secret_key == KEY
        assert (await create(broker)).error_code == ErrorCode.NONE


async def test_secret_key_is_not_described() -> None:
    async with running_broker(**WITH_TOKENS) as broker:
        resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker.broker_id))
        response = await ask(
            broker, handle_describe_configs, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
        configs = {each.name: each for each in response.results[0].configs}
        secret = configs["delegation.token.secret.key"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert KEY not in repr(response)
