"""The gate of a connection: time, sizes, sessions, and that it is gone afterwards."""

import asyncio
import gc
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.sasl_config import SaslListener
from oncelog.broker.dispatch.api_handler import ApiHandler, Outcome, handles
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers.sasl_authenticate import handle_sasl_authenticate
from oncelog.broker.handlers.sasl_handshake import handle_sasl_handshake
from oncelog.broker.network.authentication_gate import AuthenticationGate
from oncelog.broker.network.heartbeats import Heartbeats, heartbeat_client_id
from oncelog.broker.network.sasl_guard import SaslGuard
from oncelog.broker.security.login_log import LoginLog
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.protocol.sasl.plain import encode_plain
from tests.simulation.virtual_loop import SimSideLoop
from tests.unit.broker.network.frame_client import LOOPS, FrameClient, Served, run, serve
from tests.unit.broker.virtual_time import in_virtual_time

LISTENER = "SASL_PLAINTEXT"
RIGHT = encode_plain("alice", "wonderland")
WRONG = encode_plain("alice", "wrong")
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")


class Handlers:
    """Serves heartbeats and ApiVersions, and keeps the connection of the last request."""

    def __init__(self) -> None:
        self.connection: ConnectionInfo | None = None

    def all(self) -> list[ApiHandler[Any]]:
        @handles(ApiKey.HEARTBEAT, versions="0-3")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
            self.connection = context.connection
            return HeartbeatResponse()

        @handles(ApiKey.API_VERSIONS, versions="0-4")
        def handle_api_versions(broker: Any, context: RequestContext, request: ApiVersionsRequest) -> Outcome:
            self.connection = context.connection
            context.connection.carries_heartbeats = context.client_id == heartbeat_client_id(1)
            if request.client_software_name == "?":
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            return ApiVersionsResponse()

        return [handle_heartbeat, handle_api_versions, handle_sasl_handshake, handle_sasl_authenticate]


@asynccontextmanager
async def guarded(
    handlers: Handlers,
    *,
    max_reauth_ms: int = 0,
    heartbeats: Heartbeats | None = None,
    logins: LoginLog | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    config = BrokerConfig(**settings)
    listener = SaslListener(
        mechanisms=("PLAIN",), plain_users={"alice": "wonderland"}, max_reauth_ms={"PLAIN": max_reauth_ms}
    )
    host = SimpleNamespace(config=config, rng=random.Random(1))
    guard = SaslGuard(listener, host, tokens=None, salt_key=b"", logins=logins or LoginLog())  # type: ignore[arg-type]
    async with serve(
        handlers.all(), config=config, heartbeats=heartbeats, listeners=[LISTENER], guards={LISTENER: guard}
    ) as served:
        yield served


async def log_in(client: FrameClient, token: bytes = RIGHT, *, first: int = 1) -> SaslAuthenticateResponse:
    before = len(client.frames)
    client.send((first, HANDSHAKE, 1), (first + 1, SaslAuthenticateRequest(auth_bytes=token), 2))
    await client.correlation_ids(before + 2)
    return parse_response(SaslAuthenticateResponse, 2, memoryview(client.frames[before + 1]))[1]


def test_logins_and_failures_are_audited_without_what_the_client_sent() -> None:
    written: list[str] = []

    def write(event: str, **fields: Any) -> None:
        written.append(f"{event} {fields}")

    @in_virtual_time
    async def scenario() -> None:
        async with guarded(Handlers(), logins=LoginLog(write)) as served:
            for token in (RIGHT, WRONG, encode_plain("wonderland", "alice"), b"wonderland"):
                await log_in(await served.connect(), token)
            (await served.connect()).send((1, HeartbeatRequest(), 3))
            unknown = await served.connect()
            unknown.send((1, SaslHandshakeRequest(mechanism="wonderland"), 1))
            late = await served.connect()
            await asyncio.sleep(20)
            assert not late.frames

    scenario()
    assert [line.partition(" ")[0] for line in written] == ["login", *["login_failed"] * 3]
    assert "'User:alice', 'mechanism': 'PLAIN'" in written[0]
    reasons = ("a wrong password of user alice", "an unknown user", "before authentication")
    assert [reason in line for reason, line in zip(reasons, written[1:], strict=False)] == [True] * 3
    assert "wonderland" not in "".join(written)


def test_log_of_a_login_contains_no_password(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with guarded(Handlers()) as served:
            for token in (RIGHT, WRONG, encode_plain("wonderland", "alice"), b"wonderland"):
                await log_in(await served.connect(), token)

    with caplog.at_level(logging.DEBUG):
        scenario()
    assert "a wrong password of user alice" in caplog.text
    assert "wonderland" not in caplog.text


@pytest.mark.parametrize("loop_name", LOOPS)
def test_whole_exchange_with_the_first_request_in_one_write_is_served(loop_name: str) -> None:
    async def scenario() -> None:
        handlers = Handlers()
        async with guarded(handlers) as served:
            client = await served.connect()
            client.send(
                (1, ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3),
                (2, HANDSHAKE, 1),
                (3, SaslAuthenticateRequest(auth_bytes=RIGHT), 1),
                (4, HeartbeatRequest(group_id="g"), 3),
            )
            assert await client.correlation_ids(4) == [1, 2, 3, 4]
            assert handlers.connection is not None
            assert str(handlers.connection.principal) == "User:alice"

    run(loop_name, scenario)


@in_virtual_time
async def test_raw_tokens_are_bare_frames_both_ways() -> None:
    async with guarded(Handlers()) as served:
        client = await served.connect()
        client.send((1, HANDSHAKE, 0))
        await client.correlation_ids(1)
        client.transport.write(len(RIGHT).to_bytes(4, "big") + RIGHT)
        await client.correlation_ids(2)
        assert client.frames[1] == b""
        client.send((2, HeartbeatRequest(group_id="g"), 3))
        await client.correlation_ids(3)
        assert parse_response(HeartbeatResponse, 3, memoryview(client.frames[2]))[0] == 2


@in_virtual_time
async def test_failure_has_its_response_and_is_closed_after_the_delay_and_nothing_else_is_read() -> None:
    handlers = Handlers()
    async with guarded(handlers, connection_failed_authentication_delay_ms=700) as served:
        client = await served.connect()
        began = asyncio.get_running_loop().time()
        client.send((1, HANDSHAKE, 1), (2, SaslAuthenticateRequest(auth_bytes=WRONG), 2))
        client.send((3, SaslAuthenticateRequest(auth_bytes=RIGHT), 2), (4, HeartbeatRequest(group_id="g"), 3))
        await client.correlation_ids(2)
        assert asyncio.get_running_loop().time() - began >= 0.7
        response = parse_response(SaslAuthenticateResponse, 2, memoryview(client.frames[1]))[1]
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await client.lost
        assert asyncio.get_running_loop().time() - began < 0.9
        assert await client.correlation_ids(2) == [1, 2]
        assert handlers.connection is None


@in_virtual_time
async def test_authentications_are_counted_by_listener() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000) as served:
        client = await served.connect()
        await log_in(client)
        await asyncio.sleep(2)
        await log_in(client, first=3)
        await log_in(await served.connect(), WRONG)
        traffic = served.server.traffic()[LISTENER]
        assert (traffic.successful_authentications, traffic.failed_authentications) == (2, 1)


@in_virtual_time
async def test_mechanism_that_is_not_enabled_is_refused_and_closed_after_the_delay() -> None:
    async with guarded(Handlers(), connection_failed_authentication_delay_ms=700) as served:
        client = await served.connect()
        began = asyncio.get_running_loop().time()
        client.send((1, SaslHandshakeRequest(mechanism="GSSAPI"), 1))
        await client.lost
        assert asyncio.get_running_loop().time() - began >= 0.7
        response = parse_response(SaslHandshakeResponse, 1, memoryview(client.frames[0]))[1]
        assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])


@pytest.mark.parametrize("size", [-1, 524_289, 0x16030100, 2**31 - 1])
def test_bad_length_before_authentication_closes_after_the_delay_without_memory(size: int) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with guarded(Handlers(), connection_failed_authentication_delay_ms=700) as served:
            client = await served.connect()
            began = asyncio.get_running_loop().time()
            client.transport.write(size.to_bytes(4, "big", signed=True) + bytes(20))
            await client.lost
            assert 0.7 <= asyncio.get_running_loop().time() - began < 0.9
            assert client.frames == []

    scenario()


@in_virtual_time
async def test_larger_request_in_one_write_with_the_login_is_accepted() -> None:
    async with guarded(Handlers(), sasl_server_max_receive_size=70_000) as served:
        client = await served.connect()
        login = (1, HANDSHAKE, 1), (2, SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        text = "x" * 32_000
        large = HeartbeatRequest(group_id=text, member_id=text, group_instance_id=text)
        client.send(*login, (3, large, 3), (4, HeartbeatRequest(group_id="g"), 3))
        assert await client.correlation_ids(4) == [1, 2, 3, 4]


@in_virtual_time
async def test_larger_requests_are_accepted_after_authentication() -> None:
    async with guarded(Handlers(), sasl_server_max_receive_size=200) as served:
        client = await served.connect()
        await log_in(client)
        client.send((3, HeartbeatRequest(group_id="g" * 1_000), 3))
        assert await client.correlation_ids(3) == [1, 2, 3]
        other = await served.connect()
        other.send((1, SaslHandshakeRequest(mechanism="g" * 1_000), 1))
        await other.lost
        assert other.frames == []


@pytest.mark.parametrize("is_greeted", [False, True])
def test_client_that_does_not_authenticate_is_closed_in_time(
    is_greeted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with guarded(Handlers(), oncelog_authentication_timeout_ms=3_000) as served:
            began = asyncio.get_running_loop().time()
            client = await served.connect()
            if is_greeted:
                client.send((1, ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3))
            await client.lost
            assert 3.0 <= asyncio.get_running_loop().time() - began < 3.2
            authenticated = await served.connect()
            await log_in(authenticated)
            await asyncio.sleep(10)
            assert not authenticated.lost.done()

    with caplog.at_level(logging.WARNING):
        scenario()
    assert "oncelog.authentication.timeout.ms" in caplog.text


@in_virtual_time
async def test_connection_that_is_lost_leaves_no_timer() -> None:
    loop: Any = asyncio.get_running_loop()
    async with guarded(Handlers(), oncelog_authentication_timeout_ms=3_600_000) as served:
        before = loop.pending_timers()
        clients = [await served.connect() for _ in range(20)]
        assert loop.pending_timers() >= before + 20
        for client in clients:
            client.transport.abort()
        await asyncio.sleep(1)
        assert loop.pending_timers() <= before


@in_virtual_time
async def test_gate_of_a_lost_connection_is_freed_without_a_collection_of_garbage() -> None:
    def gates() -> int:
        return sum(isinstance(each, AuthenticationGate) for each in gc.get_objects())

    gc.collect()
    before = gates()
    gc.disable()
    try:
        async with guarded(Handlers(), max_reauth_ms=10_000) as served:
            clients = [await served.connect() for _ in range(20)]
            for client in clients[:5]:
                await log_in(client)
            for client in clients[5:10]:
                await log_in(client, WRONG)
            assert gates() > before
            for client in clients:
                client.transport.abort()
            await asyncio.sleep(1)
            assert gates() == before
    finally:
        gc.enable()


@in_virtual_time
async def test_second_api_versions_is_read_only_after_an_error() -> None:
    async with guarded(Handlers()) as served:
        good, bad = (ApiVersionsRequest(client_software_name=name, client_software_version="1") for name in "c?")
        client = await served.connect()
        client.send((1, bad, 3), (2, good, 3))
        assert await client.correlation_ids(2) == [1, 2]
        client.send((3, good, 3))
        await client.lost
        assert len(client.frames) == 2


@in_virtual_time
async def test_heartbeat_client_id_does_not_leave_the_gate_behind() -> None:
    loop: Any = asyncio.get_running_loop()
    async with guarded(Handlers(), heartbeats=Heartbeats(SimSideLoop(loop))) as served:
        client = await served.connect()
        greeting = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        client.transport.write(b"".join(encode_request(1, heartbeat_client_id(1), greeting, 3)))
        await client.correlation_ids(1)
        assert (await log_in(client, first=2)).error_code == ErrorCode.NONE  # The other loop serves ApiVersions only.


@in_virtual_time
async def test_large_api_versions_does_not_leave_the_gate_behind() -> None:
    loop: Any = asyncio.get_running_loop()
    async with guarded(Handlers(), heartbeats=Heartbeats(SimSideLoop(loop))) as served:
        client = await served.connect()
        greeting = ApiVersionsRequest(client_software_name="c" * 32_000, client_software_version="1" * 32_000)
        client.transport.write(b"".join(encode_request(1, heartbeat_client_id(1), greeting, 3)))
        await client.correlation_ids(1)
        client.transport.write(b"".join(encode_request(2, heartbeat_client_id(1), greeting, 3)))
        await client.lost  # One is served before authentication.
        assert len(client.frames) == 1


@in_virtual_time
async def test_large_request_in_place_of_a_token_is_not_decoded_and_has_no_response() -> None:
    async with guarded(Handlers()) as served:
        client = await served.connect()
        client.send((1, HANDSHAKE, 1), (2, HeartbeatRequest(group_id="g" * 9_000), 3))
        await client.lost
        assert len(client.frames) == 1


@in_virtual_time
async def test_client_without_authentication_counts_as_one_that_has_sent_nothing() -> None:
    async with guarded(Handlers(), max_connections=1) as served:
        silent = await served.connect()
        silent.send((1, HANDSHAKE, 1))
        await asyncio.sleep(6)
        other = await served.connect()
        await silent.lost
        await log_in(other)
        await asyncio.sleep(6)
        refused = await served.connect()
        await refused.lost
        assert not other.lost.done()


# Sessions (KIP-368)


@in_virtual_time
async def test_session_without_lifetime_refuses_another_authentication_and_stays() -> None:
    async with guarded(Handlers()) as served:
        client = await served.connect()
        await log_in(client)
        await asyncio.sleep(5)
        client.send((3, HANDSHAKE, 1), (4, SaslAuthenticateRequest(auth_bytes=RIGHT), 2))
        assert await client.correlation_ids(4) == [1, 2, 3, 4]
        handshake = parse_response(SaslHandshakeResponse, 1, memoryview(client.frames[2]))[1]
        token = parse_response(SaslAuthenticateResponse, 2, memoryview(client.frames[3]))[1]
        assert handshake.error_code == token.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not client.lost.done()


@in_virtual_time
async def test_client_that_authenticates_again_in_time_is_served_on() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000) as served:
        client = await served.connect()
        for number in range(5):
            assert (await log_in(client, first=1 + 3 * number)).session_lifetime_ms == 10_000
            client.send((3 + 3 * number, HeartbeatRequest(group_id="g"), 3))
            await client.correlation_ids(3 + 3 * number)
            await asyncio.sleep(9)
        assert not client.lost.done()


@in_virtual_time
async def test_expired_session_closes_at_the_next_request_and_a_late_authentication_passes() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000) as served:
        late, silent = await served.connect(), await served.connect()
        for client in (late, silent):
            await log_in(client)
        await asyncio.sleep(11)
        assert not late.lost.done()
        assert (await log_in(late, first=3)).error_code == ErrorCode.NONE
        late.send((5, HeartbeatRequest(group_id="g"), 3))
        assert (await late.correlation_ids(5))[-1] == 5
        silent.send((3, ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3))
        await silent.lost
        assert len(silent.frames) == 2


@in_virtual_time
async def test_authentication_within_a_second_of_the_last_is_refused_and_the_connection_stays() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000) as served:
        client = await served.connect()
        await log_in(client)
        client.send((3, HANDSHAKE, 1), (4, SaslAuthenticateRequest(auth_bytes=RIGHT), 2), (5, HANDSHAKE, 1))
        await client.correlation_ids(5)
        first = parse_response(SaslHandshakeResponse, 1, memoryview(client.frames[2]))[1]
        assert first.error_code == ErrorCode.NONE
        response = parse_response(SaslHandshakeResponse, 1, memoryview(client.frames[4]))[1]
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not client.lost.done()


@in_virtual_time
async def test_authentication_behind_a_request_that_waits_has_time() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000, oncelog_authentication_timeout_ms=3_000) as served:
        client = await served.connect()
        await log_in(client)
        await asyncio.sleep(9)
        client.send((3, HANDSHAKE, 1))
        await asyncio.sleep(60)  # As behind a JoinGroup: the client cannot see the response to its SaslHandshake.
        client.send((4, SaslAuthenticateRequest(auth_bytes=RIGHT), 2), (5, HeartbeatRequest(group_id="g"), 3))
        assert await client.correlation_ids(5) == [1, 2, 3, 4, 5]


@in_virtual_time
async def test_other_request_while_authenticating_again_ends_the_connection() -> None:
    async with guarded(Handlers(), max_reauth_ms=10_000) as served:
        client = await served.connect()
        await log_in(client)
        await asyncio.sleep(2)
        client.send((3, HANDSHAKE, 1), (4, HeartbeatRequest(group_id="g"), 3))
        await client.lost
        response = parse_response(HeartbeatResponse, 3, memoryview(client.frames[3]))[1]
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
