"""What the requests about delegation tokens have in common: who may send them, and how the store is changed."""

from collections.abc import Callable
from typing import Final

from oncelog.broker.config.listeners import PLAINTEXT, SSL
from oncelog.broker.dispatch.request import ANONYMOUS, ConnectionInfo
from oncelog.broker.handlers.acl_requests import is_without_store, seconds_for_changes
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.delegation_tokens import Decision, TokenLimits
from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode

NO_TIMESTAMP: Final = -1
"""In the response to a request that was refused."""


def token_limits(broker: Broker) -> TokenLimits:
    """Return how long tokens are valid."""
    config = broker.config
    return TokenLimits(
        max_lifetime_ms=config.delegation_token_max_lifetime_ms, expiry_time_ms=config.delegation_token_expiry_time_ms
    )


def may_request_tokens(broker: Broker, connection: ConnectionInfo) -> bool:
    """Return whether a connection may carry requests about tokens.

    It may not if its client has proved no identity, or only one by a token: tokens would then beget tokens. A listener
    without SASL and TLS carries none either: a token's secret is in the response.
    """
    if connection.is_token_authenticated:
        return False
    protocol = next(
        listener.security_protocol for listener in broker.listeners.bound if listener.name == connection.listener_name
    )
    return protocol != PLAINTEXT and not (protocol == SSL and connection.principal == ANONYMOUS)


async def change_token(
    broker: Broker, secret: bytes, decide: Callable[[TokenInformation], Decision]
) -> TokenInformation | ErrorCode | None:
    """Change the token with an hmac; return what it is then, None if it was removed, or why nothing was done."""
    tokens = broker.tokens
    if tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if is_without_store(broker):
        return ErrorCode.REQUEST_TIMED_OUT
    token_id = tokens.find(secret)
    if token_id is None:
        try:  # Another broker may have created it just now.
            await tokens.catch_up()
        except StoreUnavailable:
            return ErrorCode.REQUEST_TIMED_OUT
        token_id = tokens.find(secret)
    if token_id is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    return await tokens.change(token_id, decide, timeout_seconds=seconds_for_changes(broker))
