"""DescribeUserScramCredentials (API key 50): which SCRAM mechanisms users have credentials for, and their iterations.

Salts and keys are never returned. Without users, or with null, all that have a credential are described.

Version 0 is the only one.
"""

from collections import Counter

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.broker.security.scram_users import ScramUsers
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0")
def handle_describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    users = broker.scram_users
    named = Counter(user.name for user in request.users or ()) or Counter(users.names())
    return DescribeUserScramCredentialsResponse(
        results=[_described(users, name, times) for name, times in named.items()]
    )


def _described(users: ScramUsers, name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    credentials = users.credentials(name)
    if not credentials:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=mechanism.type, iterations=credential.iterations)
            for mechanism, credential in credentials.items()
        ],
    )
