"""Users that log in, and access control lists that say what each may do: both together, over the wire."""

from pathlib import Path

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

ADMIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=secret\n"
ALICE = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password=wonder\n"


def settings(port: int) -> list[str]:
    prefix = "listener.name.sasl_plaintext"
    return [
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
        f"{prefix}.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",
        f"{prefix}.plain.sasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret";',
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
    ]


def logged_in(process: OncelogProcess, login: str) -> Oncelog:
    """Return the command of a user."""
    path = process.directory / f"{len(login)}.properties"
    path.write_text(login)
    oncelog = Oncelog(process.address)
    oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(path)
    return oncelog


def test_user_may_do_what_the_lists_allow_and_nothing_else(tmp_path: Path) -> None:
    port = free_port()
    with OncelogProcess(tmp_path, settings(port), port) as process:
        admin, alice = logged_in(process, ADMIN), logged_in(process, ALICE)
        admin("topic create orders theirs")
        admin("user add alice", text="wonder\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in alice.fails("produce orders", text="a\n")
        admin("acl add User:alice write --topic orders")
        alice("produce orders", text="a\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in alice.fails("produce theirs", text="a\n")
        assert [topic["topic"] for topic in alice.json("topic list")] == ["orders"]
        admin("acl remove User:alice --everywhere")
        assert "TOPIC_AUTHORIZATION_FAILED" in alice.fails("produce orders", text="a\n")
    with OncelogProcess(tmp_path, settings(port), port) as process:
        admin, alice = logged_in(process, ADMIN), logged_in(process, ALICE)
        admin("acl add User:alice read --topic orders")
        assert alice("consume orders -n 1 --format value") == "a\n"
