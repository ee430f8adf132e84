import pytest

from oncelog.coordinator.metadata_store.zookeeper_address import ConnectString


@pytest.mark.parametrize("path", ["/", "/brokers/ids/1"])
@pytest.mark.parametrize("text", ["host:2181", "host:2181/", "host:2181/a", "a:2181,b:2181/a/b/"])
def test_path_with_chroot_and_without_it_again_is_the_same(text: str, path: str) -> None:
    connect = ConnectString.parse(text)
    assert connect.without_chroot(connect.with_chroot(path)) == path


def test_chroot_precedes_a_path_and_stands_for_the_root() -> None:
    connect = ConnectString.parse("host:2181/a/b")
    assert connect.with_chroot("/brokers") == "/a/b/brokers"
    assert connect.with_chroot("/") == "/a/b"


@pytest.mark.parametrize(("text", "znodes"), [("host:2181", []), ("host:2181/a/b", ["/a", "/a/b"])])
def test_znodes_of_chroot_are_listed_parents_first(text: str, znodes: list[str]) -> None:
    assert list(ConnectString.parse(text).chroot_znodes()) == znodes
