"""``TokenSource``: the tokens of OAUTHBEARER with which one client authenticates.

A token comes from a token endpoint by the client credentials grant (RFC 6749, section 4.4), from a file, or from a
callable of the program. The endpoint's token is kept, and replaced when 80 % of its lifetime have passed, as Kafka's
clients do; while the endpoint does not respond, the former one is used until it expires. A session ends with its token,
and is renewed after 85 % of what remains: so each later authentication has a new token. A file is read, and a callable
called, for every authentication. All of it is off the event loop. No text contains a token or a secret.
"""

import asyncio
import base64
import binascii
import inspect
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from oncelog.clients.errors import AuthenticationFailed
from oncelog.clients.http_exchange import HttpFailed, HttpRequest, exchange
from oncelog.protocol.sasl.login import OauthLogin, TokenProvider
from oncelog.protocol.sasl.oauthbearer import MAX_TOKEN_BYTES, is_token

ENDPOINT_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
PROVIDER_SETTING: Final = "sasl_oauthbearer_token_provider"
_MAX_RESPONSE_BYTES: Final = 256 * 1024
_SECONDS: Final = 5.0
"""For one response: less than a client has for a connection, so that its error says that it is the endpoint."""
_RENEWAL_SHARE: Final = 0.8

Exchange: TypeAlias = Callable[[HttpRequest], Awaitable[bytes]]
"""Sends a request and returns the body of its response. Raises ``HttpFailed``."""


class _Kept(NamedTuple):
    """A token of the endpoint. Times are seconds of the loop's clock."""

    token: str
    renew_at: float
    expires_at: float

    def __repr__(self) -> str:
        return f"_Kept(expires_at={self.expires_at})"


class TokenSource:
    """Returns the tokens of one client."""

    def __init__(self, login: OauthLogin, *, exchange: Exchange | None = None) -> None:
        """Set up without a request; ``exchange`` replaces HTTP."""
        self._login = login
        self._exchange = exchange or _exchange_by_http
        self._kept: _Kept | None = None
        self._fetch: asyncio.Task[_Kept] | None = None

    async def token(self) -> str:
        """Return a token that is valid now. Raises ``AuthenticationFailed`` that names the setting."""
        login = self._login
        if login.token_provider is not None:
            return await _provided(login.token_provider)
        if urlsplit(login.token_endpoint_url).scheme == "file":
            return await _read(unquote(urlsplit(login.token_endpoint_url).path))
        return await self._kept_or_new()

    async def prepare(self) -> None:
        """Have a token ready, if it is one of an endpoint."""
        login = self._login
        if login.token_provider is None and urlsplit(login.token_endpoint_url).scheme != "file":
            with suppress(AuthenticationFailed):
                await self._kept_or_new()

    async def _kept_or_new(self) -> str:
        now = asyncio.get_running_loop().time()
        kept = self._kept
        if kept is not None and now < kept.renew_at:
            return kept.token
        try:
            return (await self._fetch_once()).token
        except AuthenticationFailed:
            if kept is not None and asyncio.get_running_loop().time() < kept.expires_at:
                return kept.token
            raise

    async def _fetch_once(self) -> _Kept:
        """Fetch a token; connections that are made at the same time share the request."""
        if self._fetch is None:
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_token())
            self._fetch.add_done_callback(self._take)
        return await asyncio.shield(self._fetch)

    def _take(self, fetch: "asyncio.Task[_Kept]") -> None:
        self._fetch = None
        if not fetch.cancelled() and fetch.exception() is None:
            self._kept = fetch.result()

    async def _fetch_token(self) -> _Kept:
        login = self._login
        pair = f"{quote_plus(login.client_id)}:{quote_plus(login.client_secret)}"
        form = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
        request = HttpRequest(
            url=login.token_endpoint_url,
            headers={
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            body=urlencode(form).encode(),
        )
        sent_at = asyncio.get_running_loop().time()
        try:
            token, seconds = _parse_response(await self._exchange(request))
        except (HttpFailed, ValueError) as error:
            raise AuthenticationFailed(f"{ENDPOINT_SETTING}: there is no token from it: {error}") from None
        return _Kept(token, sent_at + seconds * _RENEWAL_SHARE, sent_at + seconds)


async def _exchange_by_http(request: HttpRequest) -> bytes:
    return await exchange(request, seconds=_SECONDS, max_bytes=_MAX_RESPONSE_BYTES)


async def _provided(provider: TokenProvider) -> str:
    """Call a program's callable, in a thread unless it is a coroutine function."""
    (token,) = await asyncio.gather(_call(provider), return_exceptions=True)
    if isinstance(token, BaseException):
        raise AuthenticationFailed(f"{PROVIDER_SETTING} raised {type(token).__name__}") from token
    return _checked(token, f"{PROVIDER_SETTING} returned")


async def _call(provider: TokenProvider) -> object:
    if inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(type(provider).__call__):
        provided = provider()
    else:
        provided = await asyncio.get_running_loop().run_in_executor(None, provider)
    return await provided if inspect.isawaitable(provided) else provided


async def _read(path: str) -> str:
    try:
        content = await asyncio.get_running_loop().run_in_executor(None, _content, path)
    except OSError as error:
        raise AuthenticationFailed(f"{ENDPOINT_SETTING}: {path} cannot be read: {error.strerror or error}") from None
    return _checked(content.decode("ascii", "replace").strip(), f"{ENDPOINT_SETTING}: {path} contains")


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_TOKEN_BYTES + 1)


def _checked(token: object, source: str) -> str:
    if not isinstance(token, str) or not is_token(token):
        raise AuthenticationFailed(f"{source} no token: expected a text of letters, digits, -, _ and dots")
    return token


def _parse_response(body: bytes) -> tuple[str, float]:
    """Return the token of a response, and the seconds that it is valid for. Raises ``ValueError``."""
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("its response is not JSON") from None
    token = response.get("access_token") if isinstance(response, dict) else None
    if not isinstance(token, str) or not is_token(token):
        raise ValueError("its response has no access_token that can be sent")
    expires_in = response.get("expires_in")
    return token, _seconds(expires_in) or _lifetime_seconds(token)


def _seconds(value: object) -> float:
    """Return a positive number of seconds; 0 if the value is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < float("inf") else 0.0  # type: ignore[operator,arg-type]


def _lifetime_seconds(token: str) -> float:
    """Return the seconds between ``iat`` and ``exp`` of a JWT; 0 if it does not say."""
    try:
        payload = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return _seconds(claims["exp"] - claims["iat"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, binascii.Error):
        return 0.0
