"""``docker-compose.secure.yml`` without an engine: what it gives to brokers, and the secrets that it makes.

``make compose-test`` runs it for real, where a Docker engine is.
"""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from compose_spec import PyOptions

from oncelog.broker.config.access_control import super_users
from oncelog.broker.config.listeners import checked_listeners
from oncelog.broker.config.sources import LoadedConfig, load_config
from oncelog.broker.container import image_settings
from tests.command import Oncelog
from tests.integration.test_image import BROKERS, Container
from tests.integration.test_image import SERVICES as PLAIN_SERVICES
from tests.processes import LIMIT_SECONDS, REPOSITORY, child_environment, free_port

TEXT: Final = (REPOSITORY / "docker-compose.secure.yml").read_text()
PLACE: Final = "/etc/oncelog"


def compose() -> Any:
    """The compose file, as the specification's own parser reads it."""
    options = PyOptions()
    options.apply_merge = True
    parsed = options.from_yaml(TEXT)
    parsed.validate()
    return json.loads(parsed.to_json())


COMPOSED: Final = compose()
SERVICES: Final = COMPOSED["services"]


class Secrets:
    """What the first service makes, in directories of the test in place of its volumes."""

    def __init__(self, directory: Path) -> None:
        self.authority = directory / "authority"
        self.secured = directory / "secured"
        self.secured.mkdir(parents=True)

    def make(self) -> None:
        shell, options, script = SERVICES["secrets"]["command"]
        for written, needed in (
            ("$$", "$"),
            ("/authority", str(self.authority)),
            (PLACE, str(self.secured)),
            ("chown -R 1000:1000 .\n", ""),  # The test is no container's root.
        ):
            assert written in script
            script = script.replace(written, needed)
        environment = child_environment()
        environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
        subprocess.run([shell, options, script], check=True, env=environment, timeout=LIMIT_SECONDS)

    def environment_of(self, broker: str) -> dict[str, str]:
        found = SERVICES[broker]["environment"]
        return {key: str(value).replace(PLACE, str(self.secured)) for key, value in found.items()}

    def load(self, broker: str) -> LoadedConfig:
        environment = self.environment_of(broker)
        return load_config(properties=Path(environment["ONCELOG_CONFIG_FILE"]).read_text(), environment=environment)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    made = Secrets(tmp_path_factory.mktemp("secrets"))
    made.make()
    return made


def test_brokers_differ_from_those_of_the_plain_file_in_security_only() -> None:
    assert set(SERVICES) == {"secrets", "zookeeper", *BROKERS}
    for name in BROKERS:
        secured, plain = SERVICES[name], PLAIN_SERVICES[name]
        environment = {key: value for key, value in secured["environment"].items() if key in plain["environment"]}
        environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"
        assert environment == plain["environment"]
        ignored = ("environment", "depends_on", "volumes")
        assert {key: value for key, value in secured.items() if key not in ignored} == {
            key: value for key, value in plain.items() if key not in ignored
        }
        data = f"secure-{name}-data:/var/lib/kafka/data"
        assert secured["volumes"] == [f"secured:{PLACE}:ro", data]


def test_data_of_the_plain_file_is_left_alone() -> None:
    assert not set(COMPOSED["volumes"]) & {f"{name}-data" for name in (*BROKERS, "zookeeper")}


def test_brokers_wait_for_the_secrets_and_do_not_see_the_key_of_the_authority() -> None:
    for name in BROKERS:
        assert SERVICES[name]["depends_on"] == {
            "secrets": {"condition": "service_completed_successfully"},
            "zookeeper": {"condition": "service_healthy"},
        }
        assert not any("authority" in volume for volume in SERVICES[name]["volumes"])
    assert SERVICES["secrets"]["network_mode"] == "none"


def test_compose_file_and_environment_have_no_password() -> None:
    given = {key for name in BROKERS for key in SERVICES[name]["environment"]}
    assert not [key for key in given if "PASSWORD" in key or "JAAS" in key]
    found = re.findall(r'(?:password|user_\w+)="?([^\s";]+)', TEXT)
    assert found == ["$$admin", "$$broker", "$$broker", "$$admin"]


def test_secrets_are_readable_by_their_owner_only_and_different_each_time(secrets: Secrets, tmp_path: Path) -> None:
    files = [*secrets.secured.iterdir(), *secrets.authority.iterdir()]
    public = {"ca.pem"}
    assert {path.name for path in secrets.secured.iterdir()} == {
        "ca.pem", "admin.properties", "server.properties", "broker-localhost.pem", *(f"broker-{n}.pem" for n in BROKERS)
    }  # fmt: skip
    assert not [path for path in files if path.name not in public and stat.S_IMODE(path.stat().st_mode) != 0o600]
    other = Secrets(tmp_path)
    other.make()
    for name in ("server.properties", "admin.properties", "ca.pem"):
        assert (other.secured / name).read_text() != (secrets.secured / name).read_text()


def test_secrets_that_are_there_stay(secrets: Secrets) -> None:
    before = {path: path.read_bytes() for path in secrets.secured.iterdir()}
    secrets.make()
    assert {path: path.read_bytes() for path in secrets.secured.iterdir()} == before


@pytest.mark.parametrize("name", BROKERS)
def test_settings_of_a_broker_are_accepted_and_leave_no_listener_open(secrets: Secrets, name: str) -> None:
    loaded = secrets.load(name)
    assert not loaded.warnings
    assert not [remark for remark in loaded.remarks if "no effect" in remark]
    listeners = checked_listeners(loaded.config)
    assert {listener.name: listener.security_protocol for listener in listeners.bound} == {
        "INTERNAL": "SASL_SSL", "EXTERNAL": "SASL_SSL"
    }  # fmt: skip
    assert listeners.inter_broker == "INTERNAL"
    assert super_users(loaded.config) == {("User", "broker"), ("User", "admin")}
    assert not loaded.config.allow_everyone_if_no_acl_found
    assert image_settings(loaded.config.given, {"ONCELOG_DATA_DIR": "/d"}, name) == {"log.dirs": "/d"}


def test_broker_with_these_settings_is_healthy_and_serves_who_has_the_rights(secrets: Secrets, tmp_path: Path) -> None:
    """One broker, without ZooKeeper, and at the host's listener only, since this machine does not know broker1."""
    port = free_port()
    variables = secrets.environment_of("broker1")
    del variables["KAFKA_ZOOKEEPER_CONNECT"]
    variables |= {
        "KAFKA_LISTENERS": f"EXTERNAL://localhost:{port}",
        "KAFKA_ADVERTISED_LISTENERS": f"EXTERNAL://localhost:{port}",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "EXTERNAL",
        "KAFKA_DEFAULT_REPLICATION_FACTOR": "1",
        "KAFKA_MIN_INSYNC_REPLICAS": "1",
        "ONCELOG_BOOTSTRAP": f"localhost:{port}",
    }
    with Container(tmp_path, variables) as container:
        assert container.run("health", "--ready").stdout == "ready\n"
        admin, alice = Oncelog(f"localhost:{port}"), Oncelog(f"localhost:{port}")
        admin.environment["ONCELOG_COMMAND_CONFIG"] = variables["ONCELOG_COMMAND_CONFIG"]
        admin("user add alice", text="wonderland\n")
        admin("topic create orders")
        admin("acl add User:alice write --topic orders")
        login = tmp_path / "alice.properties"
        text = (secrets.secured / "admin.properties").read_text()
        text = re.sub("sasl.password=.*", "sasl.password=wonderland", text)
        login.write_text(text.replace("username=admin", "username=alice").replace("PLAIN", "SCRAM-SHA-512"))
        alice.environment["ONCELOG_COMMAND_CONFIG"] = str(login)
        alice("produce orders", text="a\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in alice.fails("consume orders -n 1")
        assert Oncelog(f"localhost:{port}").run("topic list --timeout 3").returncode != 0
