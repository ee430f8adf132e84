"""``oncelog doctor --command-config`` against a broker process that a client cannot use as it tries to."""

import datetime
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer

from oncelog.clients.trial_certificates import make_authority, sign_broker, sign_client
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

NOW: Final = datetime.datetime.fromtimestamp(time.time_ns() / 1e9, datetime.UTC)
DAYS: Final = 9
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROTOCOLS: Final = {
    "SECURED": "SASL_SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "OPEN": "PLAINTEXT",
    "MUTUAL": "SSL",
    "EXPIRED": "SASL_SSL",
    "FUTURE": "SASL_SSL",
    "NAMELESS": "SASL_SSL",
    "UNTRUSTED": "SASL_SSL",
}
SECONDS: Final = 30


class ManyListeners(OncelogProcess):
    """A broker with listeners of all kinds, some of them with certificates that no client should accept."""

    def __init__(self, directory: Path) -> None:
        self.ports = {name: free_port() for name in PROTOCOLS}
        super().__init__(directory, (), self.ports["SECURED"])
        self.address = f"localhost:{self.port}"
        self.certificates = directory / "certificates"
        self._make_certificates()
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        self.settings = [
            f"listeners={listeners}",
            "listener.security.protocol.map=" + ",".join(map(":".join, PROTOCOLS.items())),
            "inter.broker.listener.name=SECURED",
            f"ssl.keystore.location={self.certificates / 'broker.pem'}",
            f"ssl.truststore.location={self.certificates / 'ca.pem'}",
            *(
                f"listener.name.{name}.ssl.keystore.location={self.certificates / name}.pem"
                for name in ("expired", "future", "nameless", "untrusted")
            ),
            "listener.name.mutual.ssl.client.auth=required",
            "sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",
            f'sasl.jaas.config={PLAIN} user_admin="admin";',
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            "super.users=User:admin",
        ]

    def _make_certificates(self) -> None:
        self.certificates.mkdir(parents=True)
        authority, other = make_authority(NOW, DAYS), make_authority(NOW, DAYS)
        day = datetime.timedelta(days=1)
        made = {
            "broker": sign_broker(authority, ["localhost"], NOW, DAYS),
            "expired": sign_broker(authority, ["localhost"], NOW - 5 * day, 2),
            "future": sign_broker(authority, ["localhost"], NOW + day, 2),
            "nameless": sign_broker(authority, ["kafka.example"], NOW, DAYS),
            "untrusted": sign_broker(other, ["localhost"], NOW, DAYS),
            "alice": sign_client(authority, "alice", NOW, DAYS),
        }
        (self.certificates / "ca.pem").write_bytes(authority.certificate)
        for name, signed in made.items():
            (self.certificates / f"{name}.pem").write_bytes(signed.key + signed.certificate)

    def command_of(self, listener: str, settings: Mapping[str, object]) -> Oncelog:
        """Return the command at a listener, with a file of these properties."""
        path = self.directory / f"{listener.lower()}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        oncelog = Oncelog(f"localhost:{self.ports[listener]}")
        oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(path)
        return oncelog

    def settings_of(self, user: str, mechanism: str = "PLAIN", protocol: str = "SASL_SSL") -> dict[str, object]:
        """Return the properties of a user whose password is its name."""
        login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": user}
        return {"security.protocol": protocol, **(self.trust if protocol == "SASL_SSL" else {}), **login}

    @property
    def trust(self) -> dict[str, object]:
        return {"ssl.truststore.location": self.certificates / "ca.pem", "ssl.truststore.type": "PEM"}

    @property
    def own(self) -> dict[str, object]:
        return {"ssl.keystore.location": self.certificates / "alice.pem", "ssl.keystore.type": "PEM"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyListeners]:
    with ManyListeners(tmp_path_factory.mktemp("broker")) as running:
        admin = running.command_of("SECURED", running.settings_of("admin"))
        admin("user add alice", text="alice\n")
        admin("topic create orders")
        yield running


def test_mechanism_that_is_not_enabled_is_named_with_those_that_are(broker: ManyListeners) -> None:
    said = broker.command_of("SECURED", broker.settings_of("alice", "SCRAM-SHA-256")).fails("doctor", exit_code=3)
    assert "SASL mechanism SCRAM-SHA-256 is not enabled; enabled: SCRAM-SHA-512, PLAIN" in said
    assert "set sasl.mechanism to one that is enabled" in said
    assert "is a broker running there" not in said


def test_wrong_password_is_named_with_the_settings_to_look_at(broker: ManyListeners) -> None:
    settings = {**broker.settings_of("alice", "SCRAM-SHA-512"), "sasl.password": "another"}
    said = broker.command_of("SECURED", settings).fails("doctor", exit_code=3)
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in said
    assert "see sasl.username and sasl.password" in said
    assert "another" not in said


@pytest.mark.parametrize(
    ("listener", "protocol", "wanted"), [("LOGIN", "PLAINTEXT", "SASL_PLAINTEXT"), ("SECURED", "SSL", "SASL_SSL")]
)
def test_listener_that_wants_a_login_is_named_with_its_mechanisms(
    broker: ManyListeners, listener: str, protocol: str, wanted: str
) -> None:
    settings = {"security.protocol": protocol, **(broker.trust if protocol == "SSL" else {})}
    said = broker.command_of(listener, settings).fails("doctor", exit_code=3)
    assert f"its listener wants a login (SCRAM-SHA-512 or PLAIN), and security.protocol is {protocol}" in said
    assert f"set security.protocol={wanted}, and sasl.mechanism" in said


def test_listener_without_logins_is_named(broker: ManyListeners) -> None:
    settings = broker.settings_of("alice", "SCRAM-SHA-512", "SASL_PLAINTEXT")
    said = broker.command_of("OPEN", settings).fails("doctor", exit_code=3)
    assert "this listener has no SASL" in said
    assert "set security.protocol to PLAINTEXT" in said


@pytest.mark.parametrize(
    ("listener", "reasons", "remedy"),
    [
        ("EXPIRED", ("certificate has expired", f"to {NOW - datetime.timedelta(days=3):%Y-%m-%d}"), "renew"),
        ("FUTURE", ("certificate is not yet valid", f"from {NOW + datetime.timedelta(days=1):%Y-%m}"), "renew"),
        ("NAMELESS", ("not valid for 'localhost'", "it has kafka.example"), "connect to a name"),
        (
            "UNTRUSTED",
            ("certificate is not accepted", "it was issued by CN=oncelog try-out authority"),
            "set ssl.truststore.location",
        ),
    ],
)
def test_certificate_that_is_not_accepted_is_described_with_the_remedy(
    broker: ManyListeners, listener: str, reasons: tuple[str, ...], remedy: str
) -> None:
    said = broker.command_of(listener, broker.settings_of("alice", "SCRAM-SHA-512")).fails("doctor", exit_code=3)
    for reason in reasons:
        assert reason in said
    assert remedy in said


def test_listener_that_wants_a_certificate_of_the_client_says_so(broker: ManyListeners) -> None:
    said = broker.command_of("MUTUAL", {"security.protocol": "SSL", **broker.trust}).fails("doctor", exit_code=3)
    assert "the broker got no certificate of this client that it accepts" in said
    assert "set ssl.keystore.location" in said


USE: Final = "doctor --produce orders --consume orders --group shop --transactional-id shop-1"
ALL: Final = ("WRITE on TOPIC orders", "READ on TOPIC orders", "READ on GROUP shop", "WRITE on TRANSACTIONAL_ID shop-1")


def test_missing_rights_are_named_one_by_one_until_there_are_none(broker: ManyListeners) -> None:
    admin = broker.command_of("SECURED", broker.settings_of("admin"))
    alice = broker.command_of("LOGIN", broker.settings_of("alice", "SCRAM-SHA-512", "SASL_PLAINTEXT"))
    added = []
    for missing in range(len(ALL), 0, -1):
        found = json.loads(alice.run(f"{USE} --format json").stdout)
        assert (found["principal"], found["rights"]) == ("User:alice", f"{len(ALL) - missing} of {len(ALL)}")
        messages = [finding["message"] for finding in found["findings"]]
        assert messages == [f"missing right: User:alice needs {right}" for right in ALL[len(ALL) - missing :]]
        advice = found["findings"][0]["advice"]
        command = advice.split("`")[1].removeprefix("oncelog ")
        assert command.startswith("acl add User:alice ")
        added.append(command)
        admin(command)
    assert "4 of 4" in alice(USE)
    admin("acl add User:alice read --topic orders --deny")
    assert "missing right: User:alice needs READ on TOPIC orders" in alice.run(USE).stdout
    for command in (*added, "acl add User:alice --topic orders"):
        admin(command.replace("acl add", "acl remove"))


def test_rights_of_a_certificate_are_those_of_its_subject(broker: ManyListeners) -> None:
    alice = broker.command_of("MUTUAL", {"security.protocol": "SSL", **broker.trust, **broker.own})
    found = json.loads(alice.run("doctor --produce orders --format json").stdout)
    assert found["principal"] == "User:CN=alice"
    (finding,) = found["findings"]
    assert finding["message"] == "missing right: User:CN=alice needs WRITE on TOPIC orders"
    assert "ssl.principal.mapping.rules" in finding["advice"]


def test_topic_that_does_not_exist_is_not_taken_for_a_missing_right(broker: ManyListeners) -> None:
    said = broker.command_of("SECURED", broker.settings_of("admin")).run("doctor --produce nowhere").stdout
    assert "topic nowhere does not exist, so what User:admin may do with it is not known" in said
    assert "missing right" not in said
    listed = broker.command_of("OPEN", {"security.protocol": "PLAINTEXT"}).run("doctor --produce nowhere").stdout
    assert "missing right: User:ANONYMOUS needs WRITE on TOPIC nowhere" in listed


def test_examination_leaves_an_open_transaction_and_a_group_alone(broker: ManyListeners) -> None:
    client = {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.certificates / "ca.pem"),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "admin",
    }
    rebalances: list[int] = []
    producer = Producer({**client, "transactional.id": "shop-1"})
    producer.init_transactions(SECONDS)
    consumer = Consumer({**client, "group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"], on_assign=lambda *_: rebalances.append(1))
    admin = broker.command_of("SECURED", broker.settings_of("admin"))
    try:
        for number in range(3):
            producer.begin_transaction()
            producer.produce("orders", str(number))
            assert producer.flush(SECONDS) == 0
            assert "4 of 4" in admin(USE)
            producer.commit_transaction(SECONDS)
            message = consumer.poll(SECONDS)
            assert message is not None
            assert message.value() == str(number).encode()
    finally:
        consumer.close()
    assert len(rebalances) == 1
