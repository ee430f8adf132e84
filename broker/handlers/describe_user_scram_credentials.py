"""DescribeUserScramCredentials (API key 50): which SCRAM mechanisms users have credentials for, and their iterations.

Salts and keys are never returned. Without users, or with null, all that have a credential are described.

Without the right to describe the cluster every user that is named has the error, too, as in Kafka.

Version 0 is the only one.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.handlers.sliced_refusal import refuse_in_slices
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_USER: Final = 5


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0")
def handle_describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse_in_slices(broker, context, request.users or (), _denied, _all_denied)
    budget = new_budget()
    steps = _describe(broker.scram_users, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _denied(user: UserName) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user.name, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _all_denied(results: Sequence[DescribeUserScramCredentialsResult]) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=list(results)
    )


def _describe(
    users: ScramUsers, request: DescribeUserScramCredentialsRequest, budget: WorkBudget
) -> Steps[DescribeUserScramCredentialsResponse]:
    times = Counter(user.name for user in request.users or ()) or Counter(users.names())
    results = yield from in_slices(times, lambda name: _described(users, name, times[name]), budget, _UNITS_PER_USER)
    return DescribeUserScramCredentialsResponse(results=results)


def _described(users: ScramUsers, name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ApiError(ErrorCode.DUPLICATE_RESOURCE, text))
    credentials = users.credentials(name)
    if not credentials:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ApiError(ErrorCode.RESOURCE_NOT_FOUND, text))
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=mechanism.type, iterations=credential.iterations)
            for mechanism, credential in credentials.items()
        ],
    )


def _refused(name: str, error: ApiError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
