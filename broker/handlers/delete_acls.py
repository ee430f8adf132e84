"""DeleteAcls (API key 31): there is no authorizer, so no access control list can be removed.

The response is that of Apache Kafka without ``authorizer.class.name``.

Versions: 2 is flexible; 3 has user resources.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def refuse_delete_acls(
    request: DeleteAclsRequest, version: int, error: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Return the error for every filter."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=message) for _ in request.filters]
    )


@handles(ApiKey.DELETE_ACLS, versions="1-3", error_response=refuse_delete_acls)
def handle_delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse_delete_acls(request, context.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return refuse_delete_acls(request, context.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
