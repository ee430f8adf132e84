"""CreateAcls (API key 30): there is no authorizer, so no access control list can be added.

The response is that of Apache Kafka without ``authorizer.class.name``.

Versions: 2 is flexible; 3 has user resources.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def refuse_create_acls(
    request: CreateAclsRequest, version: int, error: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Return the error for every creation."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error, error_message=message) for _ in request.creations]
    )


@handles(ApiKey.CREATE_ACLS, versions="1-3", error_response=refuse_create_acls)
def handle_create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse_create_acls(request, context.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return refuse_create_acls(request, context.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
