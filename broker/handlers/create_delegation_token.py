"""CreateDelegationToken (API key 38): creates a token with which clients can authenticate by SCRAM as its owner.

The owner is the client, or another user for whom the client may CREATE_TOKENS. Any broker takes the request. When the
response is sent this broker accepts the token, and the others do so as soon as they have read it. The response has the
secret of the token.

A principal of another type than ``User`` is refused as owner, too: Apache Kafka creates such a token, and authenticates
its clients as a user.

Versions: 2 is flexible; 3 has the owner.
"""

from itertools import islice

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import Principal, RequestContext
from oncelog.broker.handlers.acl_requests import is_without_store, seconds_for_changes
from oncelog.broker.handlers.token_requests import NO_TIMESTAMP, may_request_tokens, token_limits
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.delegation_tokens import MOST_RENEWERS, TokenRequest, issue, new_token_id
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.principal import USER


@handles(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3")
def handle_create_delegation_token(
    broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest
) -> Outcome:
    wanted = _wanted(context, request)
    token = _issue(broker, context, wanted)
    if isinstance(token, ErrorCode):
        return _refused(wanted, token)
    if broker.tokens is None:
        return _refused(wanted, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if is_without_store(broker):
        return _refused(wanted, ErrorCode.REQUEST_TIMED_OUT)
    return _create(broker, broker.tokens, wanted, token)


def _wanted(context: RequestContext, request: CreateDelegationTokenRequest) -> TokenRequest:
    requester = context.connection.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    return TokenRequest(
        owner=owner,
        requester=requester,
        renewers=tuple(
            Principal(each.principal_type, each.principal_name)
            for each in islice(request.renewers, MOST_RENEWERS + 1)  # One more is refused.
        ),
        max_lifetime_ms=request.max_lifetime_ms,
    )


def _issue(broker: Broker, context: RequestContext, wanted: TokenRequest) -> TokenInformation | ErrorCode:
    if not may_request_tokens(broker, context.connection):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if wanted.owner != wanted.requester and not broker.authorizer.authorize(
        context, Operation.CREATE_TOKENS, ResourceType.USER, str(wanted.owner)
    ):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return issue(wanted, token_limits(broker), new_token_id(broker.rng), broker.wall_clock())


async def _create(
    broker: Broker, tokens: TokenRepository, wanted: TokenRequest, token: TokenInformation
) -> CreateDelegationTokenResponse:
    error = await tokens.create(token, timeout_seconds=seconds_for_changes(broker))
    if error != ErrorCode.NONE:
        return _refused(wanted, error)
    return CreateDelegationTokenResponse(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiry_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
    )


def _refused(wanted: TokenRequest, error: ErrorCode) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=wanted.owner.type or USER,
        principal_name=wanted.owner.name,
        token_requester_principal_type=wanted.requester.type,
        token_requester_principal_name=wanted.requester.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
