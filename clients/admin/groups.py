"""Consumer groups: list, describe with members, delete, remove members.

Their offsets are in ``oncelog.clients.admin.group_offsets``.

Requests about several groups are sent to each coordinator once, and have a result or a ``Refusal`` for each group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.coordinators import call_coordinators
from oncelog.clients.admin.item_requests import ItemOutcomes, send_items
from oncelog.clients.admin.listings import list_of_all_brokers
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import NOT_FINAL, Cluster
from oncelog.clients.errors import Refusal, error_code, refusal, require_success
from oncelog.clients.routes import Coordinator
from oncelog.protocol.compiler import decoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolAssignment
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.topic_partition import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the list of its coordinator."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member with its assigned partitions, which are known only of groups with the protocol "consumer"."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]


@checked_fields()
@dataclass(frozen=True, slots=True, kw_only=True)
class MemberToRemove:
    """A static member by its ``group_instance_id``, or any member by its ``member_id``."""

    group_instance_id: str | None = None
    member_id: str = ""

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


async def list_groups(cluster: Cluster, states: Sequence[str] = ()) -> list[GroupListing]:
    """Return the groups of all brokers, in the order of their ids. Raises ``BrokerRefused``."""

    def listings(node_id: int, response: ListGroupsResponse) -> Iterable[GroupListing]:
        return (
            GroupListing(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                state=group.group_state,
                coordinator=node_id,
            )
            for group in response.groups
        )

    request = ListGroupsRequest(states_filter=list(states))
    found = await list_of_all_brokers(cluster, request, ListGroupsResponse, lambda r: r.error_code, listings)
    return sorted(found, key=lambda group: group.group_id)


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Return a group with its members. Raises ``BrokerRefused``, also for a group that does not exist."""
    described = (await describe_groups(cluster, [group_id]))[group_id]
    if isinstance(described, Refusal):
        raise described.as_error(f"group {group_id}")
    return described


async def describe_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, GroupDescription | Refusal]:
    """Return groups with their members; a group that does not exist is refused with GROUP_ID_NOT_FOUND."""
    described = await call_coordinators(
        cluster,
        map(Coordinator.of_group, group_ids),
        lambda some: DescribeGroupsRequest(groups=list(some)),
        DescribeGroupsResponse,
        lambda response: ((group.group_id, _description(group)) for group in response.groups),
    )
    return described.outcomes


def _description(group: DescribedGroup) -> GroupDescription | Refusal:
    refused = refusal(group.error_code, group.error_message)
    if refused is not None:
        return refused
    if group.group_state == DEAD:  # Until version 5, a group that does not exist is described so.
        return Refusal(error=ErrorCode.GROUP_ID_NOT_FOUND)
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(_member(group, member) for member in group.members),
    )


def _member(group: DescribedGroup, member: DescribedGroupMember) -> GroupMember:
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host.removeprefix("/"),
        partitions=parse_assignment(member.member_assignment) if is_consumer else (),
    )


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment; none for bytes that are no assignment."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big", signed=True), ConsumerProtocolAssignment.versions.last)
    try:
        assignment, _ = decoder(ConsumerProtocolAssignment, max(version, 0))(data, 2)
    except DecodeError:
        return ()
    partitions = [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
    return tuple(sorted(partitions))


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
    """Delete groups that have no members, with their offsets.

    A group that does not exist counts as deleted if an earlier attempt of the same call had no response.
    """
    deleted: ItemOutcomes[str, None] = await call_coordinators(
        cluster,
        map(Coordinator.of_group, group_ids),
        lambda some: DeleteGroupsRequest(groups_names=list(some)),
        DeleteGroupsResponse,
        lambda response: ((group.group_id, refusal(group.error_code)) for group in response.results),
    )
    return deleted.with_done(deleted.refused_in_doubt(ErrorCode.GROUP_ID_NOT_FOUND))


async def remove_members(
    cluster: Cluster, group_id: str, members: Sequence[MemberToRemove], *, reason: str | None = None
) -> dict[MemberToRemove, Refusal | None]:
    """Remove members from a group (KIP-345), with a ``reason`` that its coordinator logs. Raises ``BrokerRefused``.

    A member that does not exist counts as removed if an earlier attempt of the same call had no response.
    """

    def build(pending: Mapping[MemberToRemove, None], _: int) -> LeaveGroupRequest:
        leaving = [
            MemberIdentity(member_id=member.member_id, group_instance_id=member.group_instance_id, reason=reason)
            for member in pending
        ]
        return LeaveGroupRequest(group_id=group_id, members=leaving)

    def split(response: LeaveGroupResponse) -> Iterable[tuple[MemberToRemove, Refusal | None]]:
        passing = error_code(response.error_code) in NOT_FINAL
        if not passing:
            require_success(f"group {group_id}", response.error_code)
        results = {(each.group_instance_id or None, each.member_id): each.error_code for each in response.members}
        for member in members:
            error = results.get((member.group_instance_id, member.member_id), ErrorCode.UNKNOWN_SERVER_ERROR)
            yield member, refusal(response.error_code if passing else error)

    removed = await send_items(
        cluster, Coordinator.of_group(group_id), dict.fromkeys(members), build, LeaveGroupResponse, split
    )
    return removed.with_done(removed.refused_in_doubt(ErrorCode.UNKNOWN_MEMBER_ID))


async def remove_all_members(
    cluster: Cluster, group_id: str, *, reason: str | None = None
) -> dict[MemberToRemove, Refusal | None]:
    """Remove all members that a group has now. Raises ``BrokerRefused``."""
    described = await describe_group(cluster, group_id)
    members = [
        MemberToRemove(group_instance_id=member.group_instance_id)
        if member.group_instance_id
        else MemberToRemove(member_id=member.member_id)
        for member in described.members
    ]
    return await remove_members(cluster, group_id, members, reason=reason) if members else {}
