"""ListGroups: the groups that this broker coordinates. A client asks every broker to see all of them.

Version 4 filters by state, 5 by type, neither by letter case. All groups are of the classic type.
"""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from coordinator.group.coordinator import CLASSIC_GROUP_TYPE
from protocol.api_keys import ApiKey
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.server import Broker


@handles(ApiKey.LIST_GROUPS, versions="0-5")
def handle_list_groups(broker: "Broker", context: RequestContext, request: ListGroupsRequest) -> Outcome:
    """Whoever may describe the cluster sees all groups, others those that they may describe."""
    authorize = broker.authorizer.authorize
    sees_all = authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = _lowered(request.states_filter)
    types = _lowered(request.types_filter)
    error, groups = broker.group_coordinator.list_groups()
    if types and CLASSIC_GROUP_TYPE not in types:
        groups = []
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=CLASSIC_GROUP_TYPE,
            )
            for group in groups
            if (not states or group.state.value.lower() in states)
            and (sees_all or authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ],
    )


def _lowered(names: list[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)
