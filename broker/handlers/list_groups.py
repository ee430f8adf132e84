"""ListGroups: the groups that this broker coordinates. A client sends it to every broker to see all of them.

Version 4 filters by state, 5 by type, neither by letter case. All groups are of the classic type.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.group.coordinator import CLASSIC_GROUP_TYPE, GroupOverview
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_GROUP: Final = 3


@handles(ApiKey.LIST_GROUPS, versions="0-5")
def handle_list_groups(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> Outcome:
    budget = new_budget()
    steps = _list(broker, context, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _list(
    broker: Broker, context: RequestContext, request: ListGroupsRequest, budget: WorkBudget
) -> Steps[ListGroupsResponse]:
    """List all groups to a client that may describe the cluster, to others those that they may describe."""
    permits = broker.authorizer.permits
    sees_all = permits(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = _lowered(request.states_filter)
    types = _lowered(request.types_filter)
    error, groups = broker.group_coordinator.list_groups()
    response = ListGroupsResponse(error_code=error)
    if types and CLASSIC_GROUP_TYPE not in types:
        return response
    for group in groups:
        budget.left -= _UNITS_PER_GROUP
        if budget.left <= 0:
            yield None
        if states and group.state.value.lower() not in states:
            continue
        if sees_all or permits(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            response.groups.append(_listed(group))
    return response


def _listed(group: GroupOverview) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state.value,
        group_type=CLASSIC_GROUP_TYPE,
    )


def _lowered(names: list[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)
