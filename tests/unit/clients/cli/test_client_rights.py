"""Which rights a client needs for its use, and what is said of those that it does not surely have."""

import pytest

from oncelog.clients.cli.client_rights import ClientUse, Right, Standing, findings, standing_after, standing_of_topic
from oncelog.clients.principal import Principal
from oncelog.protocol.acl import AclOperation, AclResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponseTopic

ALICE = Principal("User:alice", "User:alice")
WRITE = Right(AclOperation.WRITE, AclResourceType.TOPIC, "orders")
NOT_SAID = -(2**31)


def topic(operations: int = NOT_SAID, error: ErrorCode = ErrorCode.NONE) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name="orders", topic_authorized_operations=operations)


def test_use_needs_one_right_for_each_resource() -> None:
    use = ClientUse(produce=("a",), consume=("b",), groups=("g",), transactional_ids=("t",))
    assert list(map(str, use.rights)) == [
        "WRITE on TOPIC a", "READ on TOPIC b", "READ on GROUP g", "WRITE on TRANSACTIONAL_ID t"
    ]  # fmt: skip
    assert ClientUse().rights == []


@pytest.mark.parametrize(
    ("described", "standing"),
    [
        (topic(1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE), Standing.GRANTED),
        (topic(1 << AclOperation.READ | 1 << AclOperation.DESCRIBE), Standing.DENIED),
        (topic(0), Standing.DENIED),
        (topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), Standing.DENIED),
        (topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Standing.NO_TOPIC),
        (topic(), Standing.NOT_SAID),
        (topic(error=ErrorCode.INVALID_TOPIC_EXCEPTION), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(1 << AclOperation.WRITE, ErrorCode.LEADER_NOT_AVAILABLE), Standing.GRANTED),
        (None, Standing.NOT_SAID),
    ],
)
def test_standing_follows_from_the_description_of_the_topic(
    described: MetadataResponseTopic | None, standing: Standing | ErrorCode
) -> None:
    assert standing_of_topic(AclOperation.WRITE, described) is standing


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Standing.GRANTED),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Standing.GRANTED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Standing.DENIED),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Standing.DENIED),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_standing_follows_from_the_error_of_a_request(error: ErrorCode, standing: Standing | ErrorCode) -> None:
    assert standing_after(error) is standing


def test_denied_right_has_a_finding_with_the_command_that_adds_it() -> None:
    odd = Right(AclOperation.READ, AclResourceType.GROUP, "my group")
    found = list(findings({WRITE: Standing.DENIED, odd: Standing.DENIED}, ALICE))
    assert [each.message for each in found] == [
        "missing right: User:alice needs WRITE on TOPIC orders",
        "missing right: User:alice needs READ on GROUP my group",
    ]
    assert "`oncelog acl add User:alice write --topic orders`" in str(found[0].advice)
    assert "`oncelog acl add User:alice read --group 'my group'`" in str(found[1].advice)


def test_principal_that_this_side_does_not_know_has_a_placeholder_in_the_command() -> None:
    (found,) = findings({WRITE: Standing.DENIED}, Principal(None, "the user of the token"))
    assert found.message == "missing right: the user of the token needs WRITE on TOPIC orders"
    assert "`oncelog acl add PRINCIPAL write --topic orders`" in str(found.advice)


def test_caveat_of_the_principal_ends_the_advice() -> None:
    (found,) = findings({WRITE: Standing.DENIED}, Principal("User:CN=a", "User:CN=a", "it may have another name"))
    assert str(found.advice).endswith("; it may have another name")


@pytest.mark.parametrize("standing", [Standing.NOT_SAID, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_right_that_is_not_known_is_said_to_be_so(standing: Standing | ErrorCode) -> None:
    (found,) = findings({WRITE: standing}, ALICE)
    assert found.message.startswith("whether User:alice has WRITE on TOPIC orders is not known: ")


def test_granted_right_has_no_finding() -> None:
    assert not list(findings({WRITE: Standing.GRANTED}, ALICE))
