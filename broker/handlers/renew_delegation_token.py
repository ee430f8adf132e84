"""RenewDelegationToken (API key 39): sets a new time at which a token expires, within its maximum lifetime.

The owner of the token and its renewers may. Any broker takes the request: the write is conditional in the metadata
store. A session that was authenticated by the token ends as it would have; a client that authenticates again has a
longer one.

Versions: 2 is flexible.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.token_requests import NO_TIMESTAMP, change_token, may_request_tokens, token_limits
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.delegation_tokens import renew
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@handles(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2")
def handle_renew_delegation_token(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> Outcome:
    if not may_request_tokens(broker, context.connection):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return _renew(broker, context, request)


async def _renew(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    principal, limits = context.connection.principal, token_limits(broker)
    token = await change_token(
        broker,
        bytes(request.hmac),
        lambda stored: renew(stored, principal, request.renew_period_ms, limits, broker.wall_clock()),
    )
    if isinstance(token, TokenInformation):
        return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_timestamp_ms)
    return _refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND if token is None else token)


def _refused(error: ErrorCode) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP)
