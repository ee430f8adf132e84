"""What the doctor makes of visits: each way in which a cluster can be out of reach, and what to set instead."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from oncelog.clients.cli.diagnosis import Finding, View, Visit, candidates, diagnose, is_loopback, is_nowhere
from oncelog.clients.connection import Address

SINGLE = {"advertised.listeners": "PLAINTEXT://kafka:9092", "listeners": "PLAINTEXT://:9092"}
DOUBLE = {
    "listeners": "INTERNAL://:9092,EXTERNAL://:29092",
    "advertised.listeners": "INTERNAL://broker2:9092,EXTERNAL://elsewhere:29092",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
}


def view(*addresses: str, controller: int | None = 1, cluster: str = "c") -> View:
    """Of a cluster whose brokers, from 1 on, advertise these addresses."""
    brokers = {broker_id: address(each) for broker_id, each in enumerate(addresses, start=1)}
    return View(cluster_id=cluster, controller_id=controller, brokers=brokers)


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def found(of: View, at: str, broker_id: int | None, config: Mapping[str, str] | None = None) -> Visit:
    """A visit that reached this broker."""
    return Visit(
        address=address(at), resolved=("10.0.0.1",), view=of, broker_id=broker_id, config=config or {}, versions={}
    )


def unknown(at: str) -> Visit:
    return Visit(address=address(at), failure="unknown")


def closed(at: str) -> Visit:
    return Visit(address=address(at), resolved=("10.0.0.1",), failure="Connection refused")


def findings(
    of: View, bootstrap: list[Visit], brokers: list[Visit], elsewhere: list[Visit] | None = None
) -> list[Finding]:
    return diagnose(of, bootstrap, dict(zip(of.brokers, brokers, strict=True)), elsewhere or [])


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_diagnose_brokers_reachable_at_advertised_addresses_returns_no_findings() -> None:
    reported = view("a:1", "b:2")
    assert findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), found(reported, "b:2", 2)]) == []


def test_diagnose_broker_without_id_returns_no_findings() -> None:
    reported = view("a:1")
    assert findings(reported, [found(reported, "a:1", None)], [found(reported, "a:1", None)]) == []


def test_diagnose_single_broker_with_unknown_name_advertises_the_bootstrap_address() -> None:
    reported = view("kafka:9092")
    finding = only(findings(reported, [found(reported, "localhost:19092", 1, SINGLE)], [unknown("kafka:9092")]))
    assert finding.broker_id == 1
    assert finding.message == (
        "it advertises kafka:9092, a name that this machine cannot resolve; it responds at localhost:19092"
    )
    assert finding.change == {"advertised.listeners": "PLAINTEXT://localhost:19092"}


def test_diagnose_broker_without_advertised_listeners_uses_listeners() -> None:
    reported = view("kafka:9092")
    config = {"listeners": "PLAINTEXT://kafka:9092"}
    finding = only(findings(reported, [found(reported, "localhost:19092", 1, config)], [unknown("kafka:9092")]))
    assert finding.change == {"advertised.listeners": "PLAINTEXT://localhost:19092"}


def test_diagnose_client_listener_is_replaced_and_others_are_kept() -> None:
    reported = view("localhost:19092", "elsewhere:29092")
    visits = [found(reported, "localhost:19092", 1), unknown("elsewhere:29092")]
    elsewhere = [found(reported, "localhost:29092", 2, DOUBLE)]
    finding = only(findings(reported, [found(reported, "localhost:19092", 1)], visits, elsewhere))
    assert finding.broker_id == 2
    assert finding.change == {"advertised.listeners": "INTERNAL://broker2:9092,EXTERNAL://localhost:29092"}


def test_diagnose_inter_broker_listener_is_kept_and_another_is_added() -> None:
    reported = view("broker1:9092", "broker2:9092")
    config = {
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://broker1:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL",
    }
    visits = [unknown("broker1:9092"), unknown("broker2:9092")]
    first, second = findings(reported, [found(reported, "localhost:19092", 1, config)], visits)
    assert first.change == {
        "listeners": "PLAINTEXT://:9092,EXTERNAL://:19092",
        "advertised.listeners": "PLAINTEXT://broker1:9092,EXTERNAL://localhost:19092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    assert second.broker_id == 2
    assert not second.change
    assert "localhost:9092" in str(second.advice)


def test_diagnose_added_listener_has_a_free_port() -> None:
    reported = view("broker1:9092", "broker2:9092")
    config = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://broker1:9092"}
    visits = [unknown("broker1:9092"), found(reported, "broker2:9092", 2)]
    change = only(findings(reported, [found(reported, "localhost:9092", 1, config)], visits)).change
    assert change["listeners"] == "PLAINTEXT://:9092,EXTERNAL://:19092"
    assert change["advertised.listeners"] == "PLAINTEXT://broker1:9092,EXTERNAL://localhost:19092"


def test_diagnose_unreachable_broker_returns_advice_without_a_change() -> None:
    reported = view("a:1", "b:2")
    finding = only(findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), closed("b:2")]))
    assert finding.message == "it advertises b:2, where this machine does not reach it (Connection refused)"
    assert "such as a:2" in str(finding.advice)


def test_diagnose_two_brokers_with_one_address_names_both() -> None:
    reported = view("a:1", "a:1")
    finding = only(
        findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), found(reported, "a:1", 1)])
    )
    assert (finding.broker_id, finding.message) == (2, "it advertises a:1, but broker 1 responds there")


def test_diagnose_address_of_another_cluster_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    visits = [found(reported, "a:1", 1), found(view("b:2", cluster="other"), "b:2", 1)]
    finding = only(findings(reported, [found(reported, "a:1", 1)], visits))
    assert finding.message == "it advertises b:2, but a broker of another cluster responds there (other)"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_diagnose_unspecified_address_is_a_problem(host: str) -> None:
    reported = view(f"{host}:9092")
    visit = found(reported, f"{host}:9092", 1)
    config = {"listeners": f"PLAINTEXT://{Address(host, 9092)}"}
    finding = only(findings(reported, [found(reported, "a:9092", 1, config)], [visit]))
    assert finding.message.startswith(f"it advertises {Address(host, 9092)}, which is not an address to connect to")
    assert finding.change == {"advertised.listeners": "PLAINTEXT://a:9092"}


def test_diagnose_localhost_advertised_by_another_machine_is_a_problem() -> None:
    reported = view("localhost:9092")
    there = found(reported, "kafka.example:9092", 1)
    finding = only(findings(reported, [there], [found(reported, "localhost:9092", 1)]))
    assert "where every client looks for it on its own machine" in finding.message
    assert findings(reported, [found(reported, "127.0.0.1:9092", 1)], [found(reported, "localhost:9092", 1)]) == []


def test_diagnose_bootstrap_address_of_another_cluster_is_a_problem() -> None:
    here, there = view("a:1"), view("b:1", cluster="other")
    finding = only(findings(here, [found(here, "a:1", 1), found(there, "b:1", 1)], [found(here, "a:1", 1)]))
    assert finding.is_problem
    assert "at b:1 responds other" in finding.message
    assert finding.advice == "name addresses of c only, or of the other one"


def test_diagnose_one_unreachable_bootstrap_address_is_a_note() -> None:
    reported = view("a:1")
    finding = only(findings(reported, [closed("x:1"), found(reported, "a:1", 1)], [found(reported, "a:1", 1)]))
    assert not finding.is_problem
    assert "x:1" in finding.message


def test_diagnose_cluster_without_controller_is_a_problem() -> None:
    reported = view("a:1", controller=None)
    assert "no controller" in only(findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1)])).message


def test_diagnose_brokers_with_different_members_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    visits = [found(reported, "a:1", 1), found(view("a:1"), "b:2", 2)]
    finding = only(findings(reported, [found(reported, "a:1", 1)], visits))
    assert (finding.broker_id, "other members of the cluster than the others: see 2" in finding.message) == (2, True)


def test_diagnose_brokers_with_different_controllers_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    visits = [found(reported, "a:1", 1), found(replace(reported, controller_id=2), "b:2", 2)]
    finding = only(findings(reported, [found(reported, "a:1", 1)], visits))
    assert (finding.broker_id, finding.message) == (2, "its controller is 2, that of others 1")
    hidden = replace(reported, is_kraft=True)
    assert findings(hidden, [found(hidden, "a:1", 1)], visits) == []


def test_diagnose_different_versions_is_a_note() -> None:
    reported = view("a:1", "b:2")
    served: list[dict[str, Any]] = [{"FETCH": (4, 16), "PRODUCE": (0, 13)}, {"FETCH": (4, 17), "PRODUCE": (0, 13)}]
    visits = [replace(found(reported, f"{'ab'[n]}:{n + 1}", n + 1), versions=served[n]) for n in range(2)]
    finding = only(findings(reported, [found(reported, "a:1", 1)], visits))
    assert not finding.is_problem
    assert "of FETCH first (brokers 1: 4-16; brokers 2: 4-17)" in finding.message


def test_candidates_are_the_brokers_port_on_known_hosts() -> None:
    known = [Address("h", 1), Address("g", 2), Address("h", 3)]
    assert candidates(Address("broker2", 9092), known) == [Address("h", 9092), Address("g", 9092)]
    assert candidates(Address("h", 9092), known) == [Address("g", 9092)]


def test_is_nowhere_and_is_loopback_of_hosts() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "10.0.0.1", "name")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert [is_nowhere(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "name")] == [True, True, True, False, False]


def test_diagnose_broker_without_metadata_store_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    cut_off = replace(found(reported, "b:2", 2), reaches_store=False)
    finding = only(findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), cut_off]))
    assert (finding.broker_id, finding.is_problem) == (2, True)
    assert "no leader can be elected" in finding.message
    assert "zookeeper.connect" in (finding.advice or "")


def test_diagnose_broker_with_failed_directory_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    full = replace(found(reported, "b:2", 2), failed_directories=("/data",))
    finding = only(findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), full]))
    assert (finding.broker_id, finding.is_problem) == (2, True)
    assert "/data takes no writes (KAFKA_STORAGE_ERROR)" in finding.message


def test_diagnose_broker_without_file_descriptors_is_a_problem() -> None:
    reported = view("a:1", "b:2")
    short = replace(found(reported, "b:2", 2), refusing_logs=3)
    finding = only(findings(reported, [found(reported, "a:1", 1)], [found(reported, "a:1", 1), short]))
    assert (finding.broker_id, finding.is_problem) == (2, True)
    assert "3 replicas accept no writes" in finding.message
    assert "RLIMIT_NOFILE" in (finding.advice or "")


def test_diagnose_broker_unreachable_at_reachable_host_keeps_its_address() -> None:
    reported = view("localhost:9092", "localhost:9093")
    visits = [found(reported, "localhost:9092", 1), closed("localhost:9093")]
    finding = only(findings(reported, visits[:1], visits))
    assert finding.advice is not None
    assert "see that broker 2 runs" in finding.advice
    assert "localhost:9093" not in finding.advice
