"""The tokens of a client: when it fetches a new one, and what it makes of errors."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.clients.errors import AuthenticationFailed
from oncelog.clients.http_exchange import HttpFailed, HttpRequest
from oncelog.clients.oauth_tokens import TokenSource
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.sasl.login import OauthLogin
from oncelog.protocol.sasl.oauthbearer import END_OF_CLIENT, INVALID_TOKEN, encode_oauth_first

LOGIN = OauthLogin(
    token_endpoint_url="https://issuer.example/token", client_id="al:ice", client_secret="s3 cret", scope="kafka"
)


class Endpoint:
    """Issues ``token-1``, ``token-2`` and so on, valid for 100 s."""

    def __init__(self, **response: Any) -> None:
        self.requests: list[HttpRequest] = []
        self.response: dict[str, Any] = response or {"expires_in": 100}
        self.failure = ""

    async def __call__(self, request: HttpRequest) -> bytes:
        self.requests.append(request)
        await asyncio.sleep(0.01)
        if self.failure:
            raise HttpFailed(self.failure)
        return json.dumps({"access_token": f"token-{len(self.requests)}", **self.response}).encode()


def unsigned(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + ".s"


async def test_request_is_the_grant_of_client_credentials() -> None:
    endpoint = Endpoint()
    assert await TokenSource(LOGIN, exchange=endpoint).token() == "token-1"
    (request,) = endpoint.requests
    assert request.url == LOGIN.token_endpoint_url
    assert request.body == b"grant_type=client_credentials&scope=kafka"
    assert base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")) == b"al%3Aice:s3+cret"
    assert "cret" not in f"{request} {LOGIN}"


async def test_token_is_replaced_after_most_of_its_lifetime_and_shared_by_connections() -> None:
    endpoint = Endpoint()
    source = TokenSource(LOGIN, exchange=endpoint)
    assert await asyncio.gather(*(source.token() for _ in range(20))) == ["token-1"] * 20
    await asyncio.sleep(79)
    assert await source.token() == "token-1"
    await asyncio.sleep(2)
    assert await source.token() == "token-2"
    assert len(endpoint.requests) == 2


async def test_preparation_fetches_the_token_and_leaves_failures_to_the_authentication() -> None:
    endpoint = Endpoint()
    source = TokenSource(LOGIN, exchange=endpoint)
    endpoint.failure = "no response"
    await source.prepare()
    endpoint.failure = ""
    await source.prepare()
    assert await source.token() == "token-2"
    assert len(endpoint.requests) == 2


async def test_former_token_is_used_while_the_endpoint_fails_until_it_expires() -> None:
    endpoint = Endpoint()
    source = TokenSource(LOGIN, exchange=endpoint)
    await source.token()
    endpoint.failure = "no response within 5 s"
    await asyncio.sleep(85)
    assert await source.token() == "token-1"
    await asyncio.sleep(20)
    with pytest.raises(
        AuthenticationFailed, match=r"^sasl\.oauthbearer\.token\.endpoint\.url: there is no token from it: no resp"
    ):
        await source.token()
    endpoint.failure = ""
    assert await source.token() == "token-4"


async def test_caller_that_gives_up_leaves_the_fetch_to_others() -> None:
    endpoint = Endpoint()
    source = TokenSource(LOGIN, exchange=endpoint)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await source.token()
    assert await source.token() == "token-1"


@pytest.mark.parametrize(
    ("response", "lifetime"),
    [
        ({"access_token": unsigned(iat=1000, exp=1050)}, 50),
        ({"access_token": unsigned(iat=1000, exp=1050), "expires_in": 10}, 10),
        ({"access_token": unsigned(exp=1050)}, 0),
        ({"access_token": unsigned(iat="a", exp=1050)}, 0),
        ({"access_token": "opaque"}, 0),
        ({"access_token": "a.b.c", "expires_in": "100"}, 0),
        ({"access_token": "a.b.c", "expires_in": -1}, 0),
        ({"access_token": "a.b.c", "expires_in": True}, 0),
    ],
)
async def test_lifetime_is_that_of_the_response_or_of_the_token(response: dict[str, Any], lifetime: float) -> None:
    endpoint = Endpoint(**response)
    source = TokenSource(LOGIN, exchange=endpoint)
    await source.token()
    await asyncio.sleep(lifetime * 0.8 - 0.1 if lifetime else 0)
    await source.token()
    assert len(endpoint.requests) == (1 if lifetime else 2)
    await asyncio.sleep(0.2)
    await source.token()
    assert len(endpoint.requests) == (2 if lifetime else 3)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"access_token":7}', b'{"access_token":""}', b'{"access_token":"a b"}', b"{}"]
)
async def test_response_without_a_token_is_an_error_without_its_content(body: bytes) -> None:
    async def respond(request: HttpRequest) -> bytes:
        return body

    with pytest.raises(AuthenticationFailed, match="its response") as raised:
        await TokenSource(LOGIN, exchange=respond).token()
    assert "a b" not in str(raised.value)


@pytest.mark.real_loop
async def test_file_is_read_for_each_token(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    source = TokenSource(OauthLogin(token_endpoint_url=f"file://{tmp_path}/a%20token"))
    with pytest.raises(AuthenticationFailed, match=r"token\.endpoint\.url: .*/a token cannot be read: No such file"):
        await source.token()
    for token in ("a.b.c", "d.e.f"):
        path.write_text(f"{token}\n")
        assert await source.token() == token
    for content in (b"", b"root:x:0:0:root", b"\xff", b"x" * 100_000):
        path.write_bytes(content)
        with pytest.raises(AuthenticationFailed, match="contains no token") as raised:
            await source.token()
        assert "x:0:0" not in str(raised.value)


@pytest.mark.real_loop
async def test_callable_runs_in_a_thread_and_a_coroutine_function_in_the_loop() -> None:
    where: list[str] = []

    def note() -> str:
        try:
            asyncio.get_running_loop()
            where.append("loop")
        except RuntimeError:
            where.append("thread")
        return "t"

    async def note_later() -> str:
        return note()

    for provider in (note, note_later):
        assert await TokenSource(OauthLogin(token_provider=provider)).token() == "t"
    assert where == ["thread", "loop"]


@pytest.mark.real_loop
async def test_callable_that_fails_or_returns_no_token_is_named() -> None:
    def fail() -> str:
        raise KeyError("secret")

    with pytest.raises(AuthenticationFailed, match=r"^sasl_oauthbearer_token_provider raised KeyError$"):
        await TokenSource(OauthLogin(token_provider=fail)).token()
    for value in (None, b"t", "", "a b"):
        with pytest.raises(AuthenticationFailed, match=r"^sasl_oauthbearer_token_provider returned no token"):
            await TokenSource(OauthLogin(token_provider=lambda value=value: value)).token()  # type: ignore[misc]


def provided(token: str = "t") -> SaslClient:
    async def provide() -> str:
        return token

    return SaslClient(OauthLogin(token_provider=provide, extensions=(("pool", "p"),)))


def line(*responses: bytes | str) -> tuple[list[bytes], Callable[[bytes], Awaitable[bytes]]]:
    sent: list[bytes] = []

    async def send(token: bytes) -> bytes:
        sent.append(token)
        response = responses[len(sent) - 1]
        if isinstance(response, str):
            raise AuthenticationFailed(response)
        return response

    return sent, send


async def test_client_sends_token_and_extensions_and_accepts_an_empty_response() -> None:
    sent, send = line(b"")
    await provided().authenticate(send)
    assert sent == [encode_oauth_first("t", {"pool": "p"})]


async def test_client_ends_the_exchange_when_its_token_is_refused() -> None:
    sent, send = line(INVALID_TOKEN, '{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        await provided().authenticate(send)
    assert sent[1:] == [END_OF_CLIENT]
    sent, send = line(INVALID_TOKEN, b"")
    with pytest.raises(AuthenticationFailed, match="does not accept the token"):
        await provided().authenticate(send)
