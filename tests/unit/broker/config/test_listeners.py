"""Listeners are read, and those that would leave clients without an address are refused with the fix."""

import pytest

from oncelog.broker.config.listeners import Listener, Listeners, advertised_as_loopback, parse_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config


def listeners(*overrides: str) -> Listeners:
    return parse_listeners(load_config(overrides=overrides).config)


def test_default_listener_is_one_on_this_machine() -> None:
    parsed = listeners()
    assert parsed.bound == (Listener(name="PLAINTEXT", host="localhost", port=9092),)
    assert parsed.advertised == {"PLAINTEXT": parsed.bound[0]}
    assert parsed.inter_broker == "PLAINTEXT"


def test_listeners_of_a_container_are_advertised_by_name() -> None:
    parsed = listeners(
        "listeners=INTERNAL://:9092,EXTERNAL://0.0.0.0:19092",
        "advertised.listeners=INTERNAL://broker1:9092,EXTERNAL://localhost:19092",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name=INTERNAL",
    )
    assert [(one.host, one.port) for one in parsed.bound] == [("", 9092), ("0.0.0.0", 19092)]
    assert parsed.advertised["INTERNAL"] == Listener(name="INTERNAL", host="broker1", port=9092)
    assert parsed.advertised["EXTERNAL"] == Listener(name="EXTERNAL", host="localhost", port=19092)
    assert parsed.inter_broker == "INTERNAL"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_listener_of_every_interface_is_advertised_by_own_host(host: str) -> None:
    assert listeners(f"listeners=PLAINTEXT://{host}:9092").advertised["PLAINTEXT"].host == "localhost"


def test_port_chosen_by_the_kernel_is_advertised() -> None:
    parsed = listeners("listeners=PLAINTEXT://127.0.0.1:0").with_ports({"PLAINTEXT": 4711})
    assert parsed.bound[0].port == 4711
    assert parsed.advertised["PLAINTEXT"].port == 4711


def test_fixed_advertised_port_is_kept() -> None:
    parsed = listeners("listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=PLAINTEXT://me:80")
    assert parsed.with_ports({"PLAINTEXT": 4711}).advertised["PLAINTEXT"].port == 80


def test_ipv6_addresses_are_in_brackets() -> None:
    (one,) = listeners("listeners=PLAINTEXT://[::1]:9092").bound
    assert one.host == "::1"
    assert str(one) == "PLAINTEXT://[::1]:9092"


def test_listener_of_kraft_controllers_is_not_opened() -> None:
    parsed = listeners(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    assert [one.name for one in parsed.bound] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["listeners=9092"], "'9092' is not of the form NAME://host:port"),
        (["listeners="], "listeners is empty"),
        (["listeners=PLAINTEXT://:70000"], "70000 is not a port"),
        (["listeners=A://:1"], "add A:PLAINTEXT to listener.security.protocol.map"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://:2"], "names PLAINTEXT twice"),
        (
            ["listeners=PLAINTEXT://:1", "advertised.listeners=PLAINTEXT://0.0.0.0:1"],
            "the name or address by which clients reach this broker",
        ),
        (["listeners=PLAINTEXT://:1", "advertised.listeners=PLAINTEXT://:1"], "which no client can connect to"),
        (
            ["listeners=PLAINTEXT://:1", "advertised.listeners=SSL://x:1"],
            "must have the same names: see PLAINTEXT, SSL",
        ),
        (["listener.security.protocol.map=A:B"], "expected NAME:PLAINTEXT|SSL"),
        (["inter.broker.listener.name=X"], "inter.broker.listener.name=X is not one of listeners"),
        (
            [
                "listeners=A://:1,B://:1",
                "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            ],
            "uses one port twice",
        ),
    ],
)
def test_configuration_that_is_invalid_raises_config_error(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        listeners(*overrides)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["listeners=PLAINTEXT://localhost:9092"], []),
        (["listeners=PLAINTEXT://127.0.0.1:9092", "advertised.listeners=PLAINTEXT://localhost:1"], []),
        (["listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://broker1:9092"], []),
        (["listeners=PLAINTEXT://0.0.0.0:9092"], ["PLAINTEXT://localhost:9092"]),
        (["listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://127.0.0.1:1"], ["PLAINTEXT://127.0.0.1:1"]),
        (["listeners=PLAINTEXT://10.0.0.1:9092", "advertised.listeners=PLAINTEXT://[::1]:1"], ["PLAINTEXT://[::1]:1"]),
    ],
)
def test_advertised_as_loopback_returns_listeners_reachable_from_other_machines(
    settings: list[str], expected: list[str]
) -> None:
    assert [str(listener) for listener in advertised_as_loopback(listeners(*settings))] == expected
