"""What the image's entry point adds to what its user said."""

import pytest

from oncelog.broker.config.listeners import parse_listeners
from oncelog.broker.config.sources import load_config, settings_in_environment
from oncelog.broker.container import command_line, image_settings, own_address


def settings(**environment: str) -> dict[str, str]:
    return image_settings(settings_in_environment(environment), environment, "box")


def advertised(**environment: str) -> list[str]:
    """What a broker with these variables tells its clients."""
    overrides = [f"{key}={value}" for key, value in settings(**environment).items()]
    config = load_config(environment=environment, overrides=overrides).config
    return [str(listener) for listener in parse_listeners(config).advertised.values()]


def test_container_without_settings_serves_the_host_that_publishes_its_port() -> None:
    assert settings() == {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}


def test_advertised_listener_is_opened_on_every_interface() -> None:
    given = "INTERNAL://broker1:9092,EXTERNAL://[fd00::1]:19092"
    found = settings(KAFKA_ADVERTISED_LISTENERS=given)
    assert found == {"listeners": "INTERNAL://:9092,EXTERNAL://:19092"}


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_listener_on_every_interface_is_advertised_by_the_containers_name(host: str) -> None:
    assert advertised(KAFKA_LISTENERS=f"PLAINTEXT://{host}:9092") == ["PLAINTEXT://box:9092"]
    two = {
        "KAFKA_CFG_LISTENERS": f"A://{host}:9092,B://10.0.0.1:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT,B:PLAINTEXT",
    }
    assert advertised(**two) == ["A://box:9092", "B://10.0.0.1:9093"]


def test_listener_on_one_interface_is_advertised_there() -> None:
    assert advertised(KAFKA_LISTENERS="PLAINTEXT://10.0.0.1:9092") == ["PLAINTEXT://10.0.0.1:9092"]


def test_given_listeners_are_unchanged() -> None:
    said = {"KAFKA_LISTENERS": "PLAINTEXT://:1", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://x:2"}
    assert settings(**said, KAFKA_LOG_DIRS="/elsewhere", ONCELOG_DATA_DIR="/volume") == {}
    assert settings(**said, KAFKA_LOG_DIR="/elsewhere", ONCELOG_DATA_DIR="/volume") == {}
    assert settings(**said, KAFKA_CLUSTER_ID="mine", CLUSTER_ID="theirs") == {}


def test_data_lies_in_the_volume_and_the_clusters_id_is_the_variables() -> None:
    found = settings(KAFKA_LISTENERS="PLAINTEXT://a:1", ONCELOG_DATA_DIR="/volume", CLUSTER_ID="theirs")
    assert found == {"log.dirs": "/volume", "cluster.id": "theirs"}


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("PLAINTEXT://:9092", "localhost:9092"),
        ("PLAINTEXT://0.0.0.0:29092,X://:1", "localhost:29092"),
        ("PLAINTEXT://[::]:7", "localhost:7"),
        ("PLAINTEXT://[::1]:7", "[::1]:7"),
        ("CONTROLLER://:9093,PLAINTEXT://10.0.0.1:9092", "10.0.0.1:9092"),
    ],
)
def test_health_queries_the_first_opened_listener(listeners: str, expected: str) -> None:
    assert own_address({"listeners": listeners, "controller.listener.names": "CONTROLLER"}) == expected


def test_users_words_come_last() -> None:
    words = command_line(["--set", "log.dirs=/x"], {"log.dirs": "/volume"}, "/file")
    assert words == ["serve", "--config", "/file", "--set", "log.dirs=/volume", "--set", "log.dirs=/x"]
