"""Which brokers and ports a start on a directory has, given those of earlier starts."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.broker.__main__ import cli
from oncelog.broker.local_cluster.layout import (
    Layout,
    LayoutError,
    check_ports,
    free_ports,
    plan_layout,
    read_layout,
    write_layout,
)

KEPT = Layout(zookeeper_port=20_000, broker_ports={1: 20_001, 2: 20_002, 3: 20_003})


def free() -> Iterator[int]:
    return iter(range(20_000, 20_100))


def planned(kept: Layout | None = None, *, brokers: int | None = None, port: int | None = None) -> Layout:
    return plan_layout(kept, brokers=brokers, port=port, free_ports=free)


def test_first_layout_has_three_brokers_from_port_9092_on() -> None:
    assert planned() == Layout(zookeeper_port=20_000, broker_ports={1: 9092, 2: 9093, 3: 9094})


def test_port_0_takes_free_ports_that_differ() -> None:
    layout = planned(brokers=2, port=0)
    assert layout == Layout(zookeeper_port=20_000, broker_ports={1: 20_001, 2: 20_002})


def test_zookeeper_never_gets_a_port_of_the_brokers() -> None:
    assert planned(port=20_000) == Layout(zookeeper_port=20_003, broker_ports={1: 20_000, 2: 20_001, 3: 20_002})


@pytest.mark.parametrize("port", [None, 0])
def test_later_layouts_keep_the_same_ports(port: int | None) -> None:
    assert planned(KEPT, port=port) == KEPT
    assert planned(KEPT, brokers=3, port=port) == KEPT


def test_ports_can_be_moved() -> None:
    assert planned(KEPT, port=9092).broker_ports == {1: 9092, 2: 9093, 3: 9094}


def test_added_brokers_get_unused_ports() -> None:
    assert planned(KEPT, brokers=4) == Layout(
        zookeeper_port=20_000, broker_ports={1: 20_001, 2: 20_002, 3: 20_003, 4: 20_004}
    )


def test_brokers_cannot_be_left_out() -> None:
    with pytest.raises(LayoutError, match="holds 3 brokers"):
        planned(KEPT, brokers=2)


def test_ports_end_at_65535() -> None:
    assert planned(port=65_533).broker_ports[3] == 65_535
    with pytest.raises(LayoutError, match="no room"):
        planned(port=65_534)


def test_layout_is_written_and_read_again(tmp_path: Path) -> None:
    assert read_layout(tmp_path) is None
    write_layout(tmp_path, KEPT)
    assert read_layout(tmp_path) == KEPT


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"zookeeper_port": 1, "brokers": [1]}', '{"brokers": {"a": 1}}'])
def test_layout_file_with_other_content_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(LayoutError, match=r"cluster\.json"):
        read_layout(tmp_path)


def test_free_ports_have_no_listener_and_are_not_ephemeral() -> None:
    seed = random.Random().getrandbits(64)  # Another run of this test, at the same time, has other ports.
    first = next(free_ports(random.Random(seed)))
    assert 10_000 <= first < 32_000
    with socket.create_server(("127.0.0.1", first)):
        assert next(free_ports(random.Random(seed))) != first


def test_ports_that_are_taken_are_an_error_with_the_option_that_helps() -> None:
    free = next(free_ports(random.Random(1)))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(LayoutError, match=f"^port {taken} is taken .* `oncelog cluster --port N`"):
            check_ports(Layout(zookeeper_port=free, broker_ports={1: free, 2: taken}))
        check_ports(Layout(zookeeper_port=free, broker_ports={1: free, 2: taken}), elsewhere={2})
        with pytest.raises(LayoutError, match=f"^port {taken}, which cluster.json has for ZooKeeper, is taken"):
            check_ports(Layout(zookeeper_port=taken, broker_ports={1: free}))
    check_ports(Layout(zookeeper_port=free, broker_ports={1: taken}))


def test_cluster_with_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(cli, ["cluster", "--brokers", "1", "--dir", str(tmp_path), "--port", port])
    assert result.exit_code == 1
    assert f"port {port} is taken by another process, and nothing was started" in result.output
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
