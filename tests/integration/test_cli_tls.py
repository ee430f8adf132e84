"""TLS from the certificates of a try-out to users that are who their certificates say, over the wire."""

import socket
import ssl
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port


def make_certificates(directory: Path, *words: str) -> None:
    Oncelog("")(f"tls init {directory} {' '.join(words)}")


def settings(port: int, certificates: Path) -> list[str]:
    return [
        f"listeners=SSL://localhost:{port}",
        f"ssl.keystore.location={certificates / 'broker-localhost.pem'}",
        f"ssl.truststore.location={certificates / 'ca.pem'}",
        "ssl.client.auth=required",
        r"ssl.principal.mapping.rules=RULE:^CN=(\w+)$/$1/L,DEFAULT",
        "oncelog.ssl.reload.interval.ms=50",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
        f"oncelog.audit.file={certificates / 'audit'}",
    ]


def with_certificate(process: OncelogProcess, certificates: Path, name: str) -> Oncelog:
    """Return the command of a user."""
    path = process.directory / f"{name}.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.location={certificates / 'ca.pem'}\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={certificates / f'client-{name}.pem'}\nssl.keystore.type=PEM\n"
    )
    oncelog = Oncelog(process.address)
    oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(path)
    return oncelog


def test_user_is_who_the_certificate_says(tmp_path: Path) -> None:
    port, certificates = free_port(), tmp_path / "certificates"
    make_certificates(certificates, "--client Admin --client alice")
    with OncelogProcess(tmp_path / "data", settings(port, certificates), port) as process:
        admin = with_certificate(process, certificates, "Admin")
        alice = with_certificate(process, certificates, "alice")
        admin("topic create orders")
        assert "TOPIC_AUTHORIZATION_FAILED" in alice.fails("produce orders", text="a\n")
        admin("acl add User:alice write --topic orders")
        admin("acl add User:alice read --topic orders")
        alice("produce orders", text="a\n")
        assert alice("consume orders -n 1 --format value") == "a\n"
        plain = Oncelog(process.address)
        assert "security.protocol=SSL" in plain.run("topic list --timeout 3").stderr
    audit = certificates / "audit"
    admin(f"audit verify {audit}")
    lines = audit.read_bytes().splitlines(keepends=True)
    assert [b'"event":"denied"' in line and b"User:alice" in line for line in lines].count(True) >= 1
    assert any(b'"api":"CreateTopics"' in line and b"User:admin" in line for line in lines)
    assert any(b'"event":"login","principal":"User:alice","mechanism":"TLS"' in line for line in lines)
    assert any(b'"event":"login_failed"' in line and b"it does not speak TLS" in line for line in lines)
    audit.write_bytes(b"".join(lines[:2] + lines[3:]))
    changed = admin.run(f"audit verify {audit}")
    assert (changed.returncode, "where 3 is due" in changed.stdout) == (1, True)


def serial_number(port: int, authority: Path) -> object:
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("localhost", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        found = secured.getpeercert()
    assert found
    return found["serialNumber"]


def test_certificate_that_was_renewed_is_used_without_a_restart(tmp_path: Path) -> None:
    """A transaction that is open meanwhile goes on over its connection."""
    port, certificates = free_port(), tmp_path / "certificates"
    make_certificates(certificates)
    places = [
        f"listeners=SSL://localhost:{port}",
        f"ssl.keystore.location={certificates / 'broker-localhost.pem'}",
        "oncelog.ssl.reload.interval.ms=50",
    ]
    client = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates / "ca.pem"),
    }
    with OncelogProcess(tmp_path / "data", places, port):
        first = serial_number(port, certificates / "ca.pem")
        producer = Producer(client | {"transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("orders", b"before")
        assert producer.flush(20) == 0
        make_certificates(certificates, "--renew")
        for _ in range(1_000):
            if serial_number(port, certificates / "ca.pem") != first:
                break
        else:
            raise AssertionError("the renewed certificate is not used")
        producer.produce("orders", b"after")
        producer.commit_transaction(20)
        consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        found = [message.value() for message in (consumer.poll(20), consumer.poll(20)) if message is not None]
        consumer.close()
        assert found == [b"before", b"after"]
