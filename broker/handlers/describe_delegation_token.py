"""DescribeDelegationToken (API key 41): the tokens that a client may see, with their secrets.

A client sees the tokens that it owns, has requested or may renew, and those that it may DESCRIBE, or whose owner's
tokens it may DESCRIBE_TOKENS. With owners in the request only tokens that concern one of these; an empty list selects
none. The response has what this broker knows.

Versions: 2 is flexible; 3 has the requester of a token.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import Principal, RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.token_requests import may_request_tokens
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_TOKEN: Final = 8
_UNITS_PER_RENEWER: Final = 2


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3")
def handle_describe_delegation_token(
    broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest
) -> Outcome:
    if not may_request_tokens(broker, context.connection):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if broker.tokens is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
    budget = new_budget()
    steps = _describe(broker, context, broker.tokens, owners, budget)
    return broker.sliced_work.start(steps, budget, context.connection)


def _describe(
    broker: Broker,
    context: RequestContext,
    tokens: TokenRepository,
    owners: set[Principal] | None,
    budget: WorkBudget,
) -> Steps[DescribeDelegationTokenResponse]:
    response = DescribeDelegationTokenResponse()
    for token in list(tokens.tokens.values()):
        budget.left -= _UNITS_PER_TOKEN + _UNITS_PER_RENEWER * len(token.renewers)
        if budget.left <= 0:
            yield None
        is_there = token.token_id in tokens.tokens  # It may have been removed meanwhile.
        if is_there and _is_wanted(token, owners) and _may_see(broker, context, token):
            response.tokens.append(_described(token, tokens.hmac_of(token.token_id)))
    return response


def _is_wanted(token: TokenInformation, owners: set[Principal] | None) -> bool:
    return owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def _may_see(broker: Broker, context: RequestContext, token: TokenInformation) -> bool:
    if token.concerns(context.connection.principal):
        return True
    permits = broker.authorizer.permits
    return permits(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or permits(
        context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
    )


def _described(token: TokenInformation, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
