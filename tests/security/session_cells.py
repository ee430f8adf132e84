"""Sessions that end (KIP-368): with a setting, a token of OAUTHBEARER or a delegation token; and those that go on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER, encode_oauth_first
from oncelog.protocol.sasl.plain import encode_plain
from oncelog.protocol.sasl.scram import SCRAM_SHA_256
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell
from tests.security.login_cells import PASSWORD, REFUSED, Refused, Say, Words, authenticate, authenticated, say
from tests.security.token_cells import KEY, MODULE, by_token
from tests.token_issuer import AUDIENCE, ISSUER, TokenIssuer, claims_at, sign

SERVED: Final = "served"
CLOSED: Final = "closed"
SESSION_MS: Final = 1_500
"""Lifetime of a session; longer than the second after which a client may authenticate again."""
_LONG_MS: Final = 600_000
_PAUSE_SECONDS: Final = 0.05
_ATTEMPTS: Final = 400


class Login(NamedTuple):
    """One way to authenticate."""

    mechanism: str
    words: Words


MakesLogin = Callable[[str, int], Awaitable[Login]]
"""From a user and milliseconds to a login whose session lasts as long, if the mechanism has such a thing."""
Act = Callable[[Connection], Awaitable[str]]


async def _send_once(token: bytes, say: Say) -> None:
    if await say(token):
        await say(b"\x01")  # The end of a client whose token is refused.


class Logins:
    """What makes logins."""

    def __init__(self, issuer: TokenIssuer, admins: dict[str, Connection]) -> None:
        self._issuer = issuer
        self._admins = admins

    async def by_plain(self, user: str, lifetime_ms: int) -> Login:
        """Return a login whose session ends with the setting."""
        return Login("PLAIN", partial(_send_once, encode_plain(user, PASSWORD)))

    async def by_oauth(self, user: str, lifetime_ms: int) -> Login:
        now = time.time()  # noqa: TID251 - the broker under test goes by the system's clock, too
        token = sign(self._issuer.keys[0], claims_at(now, user, iat=int(now) - 1, exp=now + lifetime_ms / 1000))
        return Login(OAUTHBEARER, partial(_send_once, encode_oauth_first(token, {})))

    async def by_delegation(self, user: str, lifetime_ms: int) -> Login:
        request = CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms)
        token = await self._admins[user].send(request, CreateDelegationTokenResponse)
        assert token.error_code == ErrorCode.NONE, token
        return Login(SCRAM_SHA_256.name, by_token(token))


async def _served(connection: Connection) -> str:
    response = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    return SERVED if response.brokers else "no brokers"


async def _in_time(connection: Connection) -> str:
    """Send requests for half of the session."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + SESSION_MS / 2000
    while loop.time() < ends:
        if await _served(connection) != SERVED:
            return "not served"
        await asyncio.sleep(_PAUSE_SECONDS)
    return SERVED


async def _until_closed(connection: Connection, *requests: tuple[Any, Any]) -> str:
    """Wait for the end of the session without a word, and then send requests, of which none may have a response."""
    await asyncio.sleep(SESSION_MS / 1000 + _PAUSE_SECONDS)
    responses = 0
    for request, response_type in requests:
        try:
            await connection.send(request, response_type)
        except ClientError:
            continue
        responses += 1
    return f"{responses} responses" if responses else CLOSED


async def _working_until_closed(connection: Connection) -> str:
    """Send requests until the connection is closed, which must not be later than a moment after the session."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(_ATTEMPTS):
        try:
            await _served(connection)
        except ClientError:
            is_early = loop.time() - began < SESSION_MS / 1000 - 2 * _PAUSE_SECONDS
            return "closed early" if is_early else CLOSED
        await asyncio.sleep(_PAUSE_SECONDS)
    return "served for ever"


async def _begin_again(connection: Connection, mechanism: str) -> ErrorCode:
    """Send SaslHandshake until it may come, and return its error."""
    error = ErrorCode.ILLEGAL_SASL_STATE
    for _ in range(_ATTEMPTS):
        response = await connection.send(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, at_least=1)
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.ILLEGAL_SASL_STATE:
            return error
        await asyncio.sleep(_PAUSE_SECONDS)
    return error


async def _again(connection: Connection, other: Login, *, is_late: bool = False) -> str:
    """Authenticate again, and go on for longer than the first session would have lasted."""
    if is_late:
        await asyncio.sleep(SESSION_MS / 1000 + _PAUSE_SECONDS)
    try:
        error = await _begin_again(connection, other.mechanism)
        if error is not ErrorCode.NONE:
            return error.name
        await other.words(partial(say, connection))
        return await _in_time(connection)
    except (Refused, ClientError):
        return REFUSED


async def _at_once(connection: Connection, other: Login) -> str:
    """Authenticate again within a second of the first time."""
    try:
        await authenticate(connection, other.mechanism, other.words)
    except Refused:
        return f"refused, {await _served(connection)}"
    return "accepted"


_REQUESTS: Final[dict[str, tuple[Any, Any]]] = {
    "Metadata": (MetadataRequest(topics=[]), MetadataResponse),
    "ApiVersions": (ApiVersionsRequest(client_software_name="c", client_software_version="1"), ApiVersionsResponse),
    "FindCoordinator": (FindCoordinatorRequest(key="g"), FindCoordinatorResponse),
    "SaslAuthenticate": (SaslAuthenticateRequest(auth_bytes=b""), SaslAuthenticateResponse),
}


async def _acts(make: MakesLogin, others: dict[str, MakesLogin]) -> dict[str, tuple[str, Act]]:
    """Return what is done in a session of alice, and what must come of it."""
    acts: dict[str, tuple[str, Act]] = {
        "before its end": (SERVED, _in_time),
        "while it works": (CLOSED, _working_until_closed),
        "after its end, two requests": (
            CLOSED,
            lambda connection: _until_closed(connection, _REQUESTS["Metadata"], _REQUESTS["ApiVersions"]),
        ),
        "authenticates again at once": (
            f"refused, {SERVED}",
            partial(_at_once, other=await make("alice", _LONG_MS)),
        ),
        "authenticates again": (SERVED, partial(_again, other=await make("alice", _LONG_MS))),
        "authenticates again after its end": (
            SERVED,
            partial(_again, other=await make("alice", _LONG_MS), is_late=True),
        ),
        "authenticates again as another user": (REFUSED, partial(_again, other=await make("bob", _LONG_MS))),
        "authenticates again by an unknown mechanism": (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM.name,
            partial(_again, other=Login("NOPE", partial(_send_once, b""))),
        ),
        "authenticates again with garbage": (
            REFUSED,
            partial(_again, other=Login((await make("alice", _LONG_MS)).mechanism, partial(_send_once, b"garbage"))),
        ),
    }
    for name, request in _REQUESTS.items():
        acts[f"after its end, {name}"] = (CLOSED, partial(_until_closed_by, request))
    for name, other in others.items():
        again = partial(_again, other=await other("alice", _LONG_MS))
        acts[f"authenticates again by {name}"] = (REFUSED, again)
    return acts


async def _until_closed_by(request: tuple[Any, Any], connection: Connection) -> str:
    return await _until_closed(connection, request)


async def _cell(port: int, name: str, expected: str, make: MakesLogin, act: Act) -> Cell:
    login = await make("alice", SESSION_MS)
    try:
        async with authenticated(port, login.mechanism, login.words) as connection:
            found = await act(connection)
    except (Refused, ClientError) as error:
        found = f"{type(error).__name__}: {error}"
    return Cell(name, expected, found)


async def _try_all(port: int, issuer: TokenIssuer) -> list[Cell]:
    admins = {}
    for user in ("alice", "bob"):
        login = SaslLogin(mechanism="PLAIN", username=user, password=PASSWORD)
        admins[user] = await connect(Address("localhost", port), sasl=SaslClient(login))
    logins = Logins(issuer, admins)
    kinds: dict[str, MakesLogin] = {
        "PLAIN": logins.by_plain,
        "OAUTHBEARER": logins.by_oauth,
        "a delegation token": logins.by_delegation,
    }
    cells = []
    for kind, make in kinds.items():
        acts = await _acts(make, {name: other for name, other in kinds.items() if name != kind})
        cells += await asyncio.gather(
            *(_cell(port, f"session by {kind}, {name}", wanted, make, act) for name, (wanted, act) in acts.items())
        )
    for connection in admins.values():
        connection.close()
    return cells


def session_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker."""
    port = free_port()
    with TokenIssuer() as issuer:
        settings = [
            f"listeners=SASL_PLAINTEXT://localhost:{port}",
            f"sasl.enabled.mechanisms=PLAIN,{SCRAM_SHA_256.name},{OAUTHBEARER}",
            f'plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}" user_bob="{PASSWORD}";',
            f"listener.name.sasl_plaintext.plain.connections.max.reauth.ms={SESSION_MS}",
            f"sasl.oauthbearer.jwks.endpoint.url={issuer.jwks_url}",
            f"sasl.oauthbearer.expected.audience={AUDIENCE}",
            f"sasl.oauthbearer.expected.issuer={ISSUER}",
            f"delegation.token.secret.key={KEY}",
            "connection.failed.authentication.delay.ms=10",
        ]
        with OncelogProcess(directory, settings, port):
            return asyncio.run(_try_all(port, issuer))
