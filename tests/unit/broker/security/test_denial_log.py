"""Denials are few lines, however many there are."""

import logging

import pytest

from oncelog.broker.dispatch.request import Principal, RequestContext
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.protocol.acl import AclOperation, AclResourceType
from tests.unit.broker.replica_side import new_connection


def client(name: str = "alice") -> RequestContext:
    connection = new_connection()
    connection.principal = Principal("User", name)
    return RequestContext(0, 1, "client", connection)


@pytest.fixture
def authorizer(caplog: pytest.LogCaptureFixture) -> AclAuthorizer:
    caplog.set_level(logging.INFO)
    made = AclAuthorizer(frozenset({("User", "admin")}))
    made.change({})
    return made


async def test_first_denial_is_a_line_and_the_rest_are_counted(
    authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        assert not authorizer.authorize(client(), AclOperation.READ, AclResourceType.TOPIC, f"t{number}")
    assert caplog.messages == ["Denied User:alice at 127.0.0.1: READ on TOPIC t0"]
    await authorizer.denials.end_window()
    assert caplog.messages[1:] == ["Denied User:alice at 127.0.0.1: READ on TOPIC, 999 more within 10 s"]
    await authorizer.denials.end_window()
    assert len(caplog.messages) == 2


async def test_denials_of_many_principals_are_bounded_lines(
    authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_500):
        authorizer.authorize(client(f"u{number}"), AclOperation.READ, AclResourceType.TOPIC, "t")
    assert len(caplog.messages) == 1_000
    await authorizer.denials.end_window()
    assert caplog.messages[1_000:] == ["Denied others 500 times within 10 s"]


def test_denial_of_a_cluster_action_names_super_users(
    authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer.authorize(client(), AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster")
    (record,) = caplog.records
    assert (record.levelno, "super.users" in record.getMessage()) == (logging.WARNING, True)


def test_check_that_only_widens_leaves_no_line(authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture) -> None:
    assert not authorizer.permits(client(), AclOperation.READ, AclResourceType.TOPIC, "t")
    assert not authorizer.permits_any(client(), AclOperation.WRITE, AclResourceType.TOPIC)
    assert authorizer.authorize(client("admin"), AclOperation.READ, AclResourceType.TOPIC, "t")
    assert caplog.messages == []


def test_client_is_allowed_nothing_before_the_lists_are_known() -> None:
    authorizer = AclAuthorizer(frozenset({("User", "admin")}), allows_everyone_without_acl=True)
    assert not authorizer.authorize(client(), AclOperation.READ, AclResourceType.TOPIC, "t")
    assert not authorizer.permits_any(client(), AclOperation.WRITE, AclResourceType.TOPIC)
    assert authorizer.authorize(client("admin"), AclOperation.READ, AclResourceType.TOPIC, "t")
    authorizer.change({})
    assert authorizer.authorize(client(), AclOperation.READ, AclResourceType.TOPIC, "t")
