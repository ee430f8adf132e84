"""ExpireDelegationToken (API key 40): sets when a token expires, or removes it at once.

The owner of the token and its renewers may. A period below 0 removes the token, also one that has expired; the response
has that period as its timestamp then, as in Apache Kafka 4.3. Any broker takes the request: the write is conditional in
the metadata store. Connections that were authenticated by the token stay until the end of their session.

Versions: 2 is flexible.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.token_requests import NO_TIMESTAMP, change_token, may_request_tokens
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.delegation_tokens import expire
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2")
def handle_expire_delegation_token(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> Outcome:
    if not may_request_tokens(broker, context.connection):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return _expire(broker, context, request)


async def _expire(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    principal, period_ms = context.connection.principal, request.expiry_time_period_ms
    token = await change_token(
        broker, bytes(request.hmac), lambda stored: expire(stored, principal, period_ms, broker.wall_clock())
    )
    if isinstance(token, ErrorCode):
        return _refused(token)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=period_ms if token is None else token.expiry_timestamp_ms)


def _refused(error: ErrorCode) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP)
