"""The image without an engine: its entry point as a process, and what ``docker-compose.yml`` gives to it.

``make compose-test`` runs both for real, where a Docker engine is.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from compose_spec import PyOptions

from oncelog.broker.config.listeners import Listeners, parse_listeners
from oncelog.broker.config.sources import load_config
from oncelog.broker.container import image_settings
from tests.command import Oncelog
from tests.processes import LIMIT_SECONDS, REPOSITORY, BrokerProcess, free_port

SECONDS = LIMIT_SECONDS
BROKERS = ("broker1", "broker2", "broker3")
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()


# The compose file


def compose() -> Any:
    """The compose file, as the specification's own parser reads it: unknown keys and wrong values are errors."""
    options = PyOptions()
    options.apply_merge = True
    parsed = options.from_yaml((REPOSITORY / "docker-compose.yml").read_text())
    parsed.validate()  # Volumes and networks that services name are there.
    return json.loads(parsed.to_json())


SERVICES = compose()["services"]


def listeners_of(service: Mapping[str, Any]) -> Listeners:
    loaded = load_config(environment=service["environment"])
    assert not loaded.warnings
    assert not [remark for remark in loaded.remarks if "no effect" in remark]
    return parse_listeners(loaded.config)


def test_compose_file_has_a_zookeeper_and_three_brokers() -> None:
    assert set(SERVICES) == {"zookeeper", *BROKERS}
    assert re.fullmatch(r"zookeeper:3\.9(\.\d+)?", SERVICES["zookeeper"]["image"])
    assert "ruok" in SERVICES["zookeeper"]["environment"]["ZOO_4LW_COMMANDS_WHITELIST"]


@pytest.mark.parametrize("name", BROKERS)
def test_broker_is_reached_by_the_others_by_name_and_from_the_host_by_its_published_port(name: str) -> None:
    service = SERVICES[name]
    listeners = listeners_of(service)
    internal, external = listeners.advertised["INTERNAL"], listeners.advertised["EXTERNAL"]
    assert listeners.inter_broker == "INTERNAL"
    assert internal.host == service["hostname"] == name
    assert external.host == "localhost"
    bound = {listener.name: listener for listener in listeners.bound}
    assert {listener.host for listener in bound.values()} == {""}, "a container has to listen on its own interface"
    assert (bound["INTERNAL"].port, bound["EXTERNAL"].port) == (internal.port, external.port)
    assert service["ports"] == [f"127.0.0.1:{external.port}:{external.port}"]


def test_brokers_differ_in_what_must_differ_and_in_nothing_else() -> None:
    assert [listeners_of(SERVICES[name]).advertised["EXTERNAL"].port for name in BROKERS] == [19092, 29092, 39092]
    configs = [load_config(environment=SERVICES[name]["environment"]).config for name in BROKERS]
    assert [config.broker_id for config in configs] == [1, 2, 3]
    assert len({config.zookeeper_connect for config in configs}) == 1
    assert configs[0].zookeeper_connect.startswith("zookeeper:2181/")
    for name in BROKERS[1:]:
        service = json.loads(re.sub(f"{name[-1]}9092", "19092", json.dumps(SERVICES[name]).replace(name, "broker1")))
        service["environment"]["KAFKA_BROKER_ID"] = "1"
        assert service == SERVICES["broker1"]


def test_topics_are_replicated() -> None:
    config = load_config(environment=SERVICES["broker1"]["environment"]).config
    assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)


@pytest.mark.parametrize("name", BROKERS)
def test_data_is_in_a_named_volume_at_the_images_place(name: str) -> None:
    (place,) = re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)
    assert SERVICES[name]["volumes"] == [f"{name}-data:{place}"]
    assert f"ONCELOG_DATA_DIR={place}" in DOCKERFILE


def test_zookeepers_data_is_in_named_volumes_too() -> None:
    assert SERVICES["zookeeper"]["volumes"] == ["zookeeper-data:/data", "zookeeper-log:/datalog"]


@pytest.mark.parametrize("name", BROKERS)
def test_broker_waits_for_zookeepers_health_and_has_time_to_leave(name: str) -> None:
    assert SERVICES[name]["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}
    assert SERVICES["zookeeper"]["healthcheck"]["test"]
    assert SERVICES[name]["stop_grace_period"] == "40s"
    assert SERVICES[name]["init"] is True


def test_image_is_not_roots_and_says_when_it_is_healthy() -> None:
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["1000:1000"]
    assert re.findall(r"^EXPOSE (\S+)$", DOCKERFILE, re.MULTILINE) == ["9092"]
    words = '"python", "-P", "-m", "oncelog.broker.container"'
    assert re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE) == [f"[{words}]"]
    assert f'CMD [{words}, "health", "--ready"]' in DOCKERFILE


# The entry point


class Container(BrokerProcess):
    """The entry point with these variables, and no others of Kafka's."""

    def __init__(self, directory: Path, variables: Mapping[str, str], words: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.variables = variables
        self.words = words

    def command(self) -> list[str]:
        return [sys.executable, "-m", "oncelog.broker.container", *self.words]

    def environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in super().environment().items()
            if not name.startswith(("KAFKA_", "ONCELOG_", "CLUSTER_ID"))
        }
        place = {"ONCELOG_DATA_DIR": str(self.directory / "data")}
        return inherited | place | dict(self.variables)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What ``docker exec`` would do beside it, or ``docker run`` instead of it."""
        return subprocess.run(
            [sys.executable, "-m", "oncelog.broker.container", *words],
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=SECONDS,
            check=False,
        )


def test_variables_become_settings_and_the_health_check_finds_the_listener(tmp_path: Path) -> None:
    internal, external = free_port(), free_port()
    variables = {
        "KAFKA_LISTENERS": f"INTERNAL://127.0.0.1:{internal},EXTERNAL://:{external}",
        "KAFKA_ADVERTISED_LISTENERS": f"INTERNAL://127.0.0.1:{internal},EXTERNAL://localhost:{external}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "KAFKA_BROKER_ID": "7",
        "KAFKA_NUM_PARTITIONS": "3",
        "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
    }
    container = Container(tmp_path, variables)
    assert container.run("health", "--ready", "--timeout", "1").returncode == 3
    with container:
        assert container.run("health", "--ready").stdout == "ready\n"
        oncelog = Oncelog(f"localhost:{external}")
        oncelog("topic create orders")
        assert len(oncelog.json("topic describe orders")["partitions"]) == 3
        health = oncelog.json("health")
        assert health["cluster_id"] == "MkU3OEVBNTcwNTJENDM2Qk"
        assert [(each["broker"], each["address"]) for each in health["brokers"]] == [(7, f"localhost:{external}")]
        assert (tmp_path / "data" / "orders-0").is_dir()
        assert container.stop() == 0
    assert "shut down completed" in (tmp_path / "stderr.log").read_text()


def test_variables_of_kafkas_own_example_for_one_node_do(tmp_path: Path) -> None:
    port = free_port()
    variables = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"CONTROLLER://localhost:{free_port()},PLAINTEXT://localhost:{port}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
    }
    with Container(tmp_path, variables) as container:
        assert container.run("health", "--ready").stdout == "ready\n"
    assert "unknown setting" not in (tmp_path / "stderr.log").read_text()


def test_mounted_file_counts_less_than_variables_and_more_than_the_image(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=PLAINTEXT://localhost:{port}\nlog.dirs={tmp_path / 'elsewhere'}\nnum.partitions=2\nbroker.id=5\n"
    )
    variables = {"ONCELOG_CONFIG_FILE": str(config), "KAFKA_NUM_PARTITIONS": "4"}
    with Container(tmp_path, variables, ["--set", "broker.id=6"]):
        oncelog = Oncelog(f"localhost:{port}")
        oncelog("topic create orders")
        assert len(oncelog.json("topic describe orders")["partitions"]) == 4
        assert [broker["broker"] for broker in oncelog.json("health")["brokers"]] == [6]
    assert (tmp_path / "elsewhere" / "orders-0").is_dir()
    assert not (tmp_path / "data").exists()


def test_data_directory_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    done = Container(tmp_path, {}).run()
    assert done.returncode == 1
    assert f"the data directory {tmp_path}/data cannot be written by user {os.getuid()}" in done.stderr
    assert "chown -R" in done.stderr


def test_other_words_are_commands_and_programs(tmp_path: Path) -> None:
    container = Container(tmp_path, {})
    assert container.run("version").stdout.startswith("oncelog ")
    assert container.run("txn", "states").returncode == 0
    assert container.run("echo", "a program").stdout == "a program\n"
    assert not (tmp_path / "data").exists()


def test_container_ends_at_a_signal_that_comes_before_the_broker_runs(tmp_path: Path) -> None:
    """As a container's first process it would get none that it does not handle."""
    source = (
        "import os, signal, oncelog.broker.__main__, oncelog.broker.container\n"
        "def stopped(words): os.kill(os.getpid(), signal.SIGTERM)\n"
        "oncelog.broker.__main__.main = stopped\n"
        "oncelog.broker.container.main(['serve'], os.environ)\n"
    )
    container = Container(tmp_path, {})
    done = subprocess.run([sys.executable, "-c", source], env=container.environment(), timeout=SECONDS, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_compose_leaves_nothing_open_that_the_image_would_decide() -> None:
    given = load_config(environment=SERVICES["broker1"]["environment"]).config.given
    assert image_settings(given, {"ONCELOG_DATA_DIR": "/d"}, "broker1") == {"log.dirs": "/d"}
