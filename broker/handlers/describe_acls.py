"""DescribeAcls (API key 29): there is no authorizer, so there are no access control lists to describe.

The response is that of Apache Kafka without ``authorizer.class.name``. It lets admin clients distinguish a broker
without access control from one that is too old for the request.

Versions: 2 is flexible; 3 has user resources.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(ApiKey.DESCRIBE_ACLS, versions="1-3")
def handle_describe_acls(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
