"""``oncelog acl`` against a broker with an authorizer, and what the lists then do to a client, over the wire."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Oncelog
from tests.processes import OncelogProcess

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FOR_ALL = "super.users=User:ANONYMOUS"
FOR_ADMIN = "super.users=User:admin"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker"), [AUTHORIZER, FOR_ALL]) as process:
        yield process


@pytest.fixture
def oncelog(broker: OncelogProcess) -> Iterator[Oncelog]:
    command = Oncelog(broker.address)
    yield command
    for acl in command.json("acl list"):
        command(f"acl remove {acl['principal']} --everywhere")


def test_acls_are_added_listed_and_removed(oncelog: Oncelog) -> None:
    oncelog("acl add User:alice read describe --topic orders")
    oncelog("acl add User:alice WRITE --topic ord --prefixed --host 10.0.0.7")
    oncelog("acl add User:bob cluster-action --cluster --deny")
    listed = oncelog.json("acl list --principal User:alice")
    assert [(each["operation"], each["type"], each["pattern"], each["name"], each["host"]) for each in listed] == [
        ("WRITE", "TOPIC", "PREFIXED", "ord", "10.0.0.7"),
        ("READ", "TOPIC", "LITERAL", "orders", "*"),
        ("DESCRIBE", "TOPIC", "LITERAL", "orders", "*"),
    ]
    assert [each["permission"] for each in oncelog.json("acl list --cluster")] == ["DENY"]
    assert len(oncelog.json("acl remove User:alice read --topic orders")) == 1
    assert len(oncelog.json("acl list --topic orders")) == 2
    assert len(oncelog.json("acl list --topic ord --prefixed")) == 1
    assert len(oncelog.json("acl remove User:alice --everywhere")) == 2
    assert "no such" in oncelog.run("acl remove User:alice --everywhere").stderr


def test_denials_are_removed_by_their_own_option_only(oncelog: Oncelog) -> None:
    oncelog("acl add User:alice all --topic orders")
    oncelog("acl add User:alice all --topic orders --deny --host 10.0.0.7")
    assert [each["permission"] for each in oncelog.json("acl remove User:alice --topic orders")] == ["ALLOW"]
    assert [each["permission"] for each in oncelog.json("acl list")] == ["DENY"]
    assert [each["permission"] for each in oncelog.json("acl remove User:alice --topic orders --deny")] == ["DENY"]


def test_acl_that_is_refused_ends_the_command_with_the_reason(oncelog: Oncelog) -> None:
    assert "INVALID_REQUEST" in oncelog.fails("acl add User:alice read --topic a/b")


@pytest.mark.parametrize(
    "words",
    [
        "acl add User:alice read",
        "acl add alice read --topic t",
        "acl add User:alice fly --topic t",
        "acl add User:alice read --topic t --group g",
        "acl add User:alice read --cluster --prefixed",
        "acl add User:alice write --group g",
        "acl add User:alice read --topic t --deny --host 127.0.0.0/8",
        "acl add User:alice read --topic t --deny --host localhost",
        "acl add User:alice read --cluster --deny",
        "acl remove User:alice",
        "acl remove User:alice --topic t --everywhere",
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(oncelog: Oncelog, words: str) -> None:
    oncelog.fails(words, exit_code=2)


def test_broker_without_an_authorizer_says_so(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as process:
        said = Oncelog(process.address).fails("acl list")
        assert "SECURITY_DISABLED" in said
        assert "authorizer.class.name" in said


def test_client_that_is_no_super_user_goes_by_the_lists(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, [AUTHORIZER, FOR_ALL]) as process:
        command = Oncelog(process.address)
        command("topic create mine theirs")
        command("acl add User:ANONYMOUS read write --topic mine")
    with OncelogProcess(tmp_path, [AUTHORIZER, FOR_ADMIN], port=process.port):
        assert [topic["topic"] for topic in command.json("topic list")] == ["mine"]
        unseen = command.run("health")
        assert (unseen.returncode, "may not see every topic" in unseen.stdout) == (1, True)
        command("produce mine", text="a\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in command.fails("produce theirs", text="a\n")
        assert "CLUSTER_AUTHORIZATION_FAILED" in command.fails("acl add User:ANONYMOUS all --topic theirs")
        assert "TOPIC_AUTHORIZATION_FAILED" in command.fails("topic create other")


def test_client_without_rights_does_not_hear_that_there_are_no_topics(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, [AUTHORIZER, FOR_ADMIN]) as process:
        command = Oncelog(process.address)
        for kind, none in (
            ("topic", "No topics that this client may describe."),
            ("group", "No groups that this client may describe."),
            ("txn", "No transactional ids among those that this client may describe."),
        ):
            assert command.run(f"{kind} list").stderr.strip() == none
            assert command.json(f"{kind} list") == []
