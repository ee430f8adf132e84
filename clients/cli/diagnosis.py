"""The problems of a cluster as this machine sees it, from the results of visits to its brokers. Pure.

A client connects to the addresses that it was given, gets the address of each broker there, and then connects to
those. So a cluster that responds at its bootstrap address may still be unreachable: the brokers advertise names that
this machine does not know, or addresses where another process listens. What a broker advertises is
``advertised.listeners``, one address for each of its listeners, and a client gets the one of the listener that it used.

``diagnose`` finds that, and works out what each broker should advertise instead, if visits show where it responds.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.clients.cli.directories import DIRECTORY_ADVICE, OPEN_FILES_ADVICE, about_directory, about_open_files
from oncelog.clients.cli.metadata_store import STORE_ADVICE, WITHOUT_STORE
from oncelog.clients.connection import Address

_ENTRY: Final = re.compile(r"(?P<name>[\w.-]+)://(?P<host>\[[^\]]*\]|[^:,]*):(?P<port>\d+)")
_OTHER_PORT: Final = 10_000
_NEW_LISTENER: Final = "EXTERNAL"

LISTENER_KEYS: Final = (
    "advertised.listeners",
    "listeners",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
)
"""The settings that a visit reads from a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The cluster as one broker describes it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, Address]
    is_kraft: bool = False
    """Then any broker may be named as the controller: that is hidden from clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The result of connecting to one address."""

    address: Address
    resolved: tuple[str, ...] = ()
    """The addresses that the name stands for, here."""
    failure: str | None = None
    """Why no broker was reached; None if one was."""
    remedy: str | None = None
    """What this machine, or the broker, can set about the failure; None if that is not known."""
    is_silent: bool = False
    """Whether the address accepts connections and sends no response."""
    view: View | None = None
    broker_id: int | None = None
    """The broker that responded; None if it did not say which it is."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Of that broker: those of ``LISTENER_KEYS`` that have a value."""
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The versions that it serves, by the API's name."""
    reaches_store: bool | None = None
    """Whether the broker reaches its metadata store; None if that is not known."""
    failed_directories: tuple[str, ...] = ()
    """Directories that accept no writes."""
    refusing_logs: int = 0
    """Logs that accept none because the broker can open no more files."""


_UNREACHED: Final = (
    "see that broker {0} runs, or set its advertised.listeners so that the listener of this machine has an address "
    "that it reaches, such as {1}, and see that this port is open"
)
_NOT_RUNNING: Final = (
    "see that broker {0} runs, and that its port is open: other brokers of the cluster are reached at this host. "
    "One that has just ended is listed until its ZooKeeper session expires"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, and what to set at that broker instead."""

    broker_id: int | None
    message: str
    change: Mapping[str, str] = field(default_factory=dict)
    advice: str | None = None
    is_problem: bool = True


def candidates(broker: Address, bootstrap: Iterable[Address]) -> list[Address]:
    """Return where else a broker might respond: at its port on hosts that are known to respond."""
    return [each for host in dict.fromkeys(a.host for a in bootstrap) if (each := Address(host, broker.port)) != broker]


def diagnose(
    view: View, bootstrap: Sequence[Visit], brokers: Mapping[int, Visit], elsewhere: Sequence[Visit]
) -> list[Finding]:
    """Return all findings, problems first.

    ``view`` is the cluster as the first broker describes it. ``bootstrap`` are the visits to the addresses that the
    user gave, at least one of them with success, ``brokers`` those to what each broker advertises, ``elsewhere`` those
    to ``candidates``.
    """
    places = [place for place in (*bootstrap, *elsewhere, *brokers.values()) if place.failure is None]
    findings = [finding for broker_id in sorted(brokers) for finding in _about(broker_id, view, brokers, places)]
    findings += _about_loopback(bootstrap, brokers)
    findings += _about_bootstrap(view, bootstrap)
    findings += _about_controller(view)
    findings += _about_stores(brokers)
    findings += _about_directories(brokers)
    findings += _about_disagreement(view, brokers)
    findings += _about_versions(brokers)
    return sorted(findings, key=lambda finding: not finding.is_problem)


# Each broker's own address


def _about(broker_id: int, view: View, brokers: Mapping[int, Visit], places: Sequence[Visit]) -> Iterator[Finding]:
    visit = brokers[broker_id]
    wrong = _what_is_wrong(broker_id, view, visit)
    if wrong is None:
        return
    home = next((place for place in places if place.broker_id == broker_id), None)
    message = f"it advertises {visit.address}, {wrong}"
    if home is not None:
        change = _change(visit.address, home, alone=len(view.brokers) == 1)
        where = f"{message}; it responds at {home.address}"
        yield Finding(broker_id=broker_id, message=where, change=change, advice=visit.remedy and f"or {visit.remedy}")
        return
    if visit.remedy is not None:
        yield Finding(broker_id=broker_id, message=message, advice=visit.remedy)
        return
    likely = Address(places[0].address.host, visit.address.port)
    advice = _NOT_RUNNING.format(broker_id) if likely == visit.address else _UNREACHED.format(broker_id, likely)
    yield Finding(broker_id=broker_id, message=message, advice=advice)


def _what_is_wrong(broker_id: int, view: View, visit: Visit) -> str | None:
    if is_nowhere(visit.address.host):
        return "which is not an address to connect to"
    if not visit.resolved:
        return "a name that this machine cannot resolve"
    if visit.failure is not None:
        return f"where this machine does not reach it ({visit.failure})"
    if visit.view is not None and visit.view.cluster_id != view.cluster_id:
        return f"but a broker of another cluster responds there ({visit.view.cluster_id})"
    if visit.broker_id not in (None, broker_id):
        return f"but broker {visit.broker_id} responds there"
    return None


def _change(wrong: Address, home: Visit, *, alone: bool) -> dict[str, str]:
    """Return the settings with which the broker advertises the address where it was found, instead of ``wrong``."""
    advertised = home.config.get("advertised.listeners") or home.config.get("listeners") or ""
    entries = list(_ENTRY.finditer(advertised))
    affected = next((entry for entry in entries if _address(entry) == wrong), None)
    if affected is None:
        name = entries[0]["name"] if len(entries) == 1 else "NAME"
        return {"advertised.listeners": f"{name}://{home.address}"}
    if alone or affected["name"] != _inter_broker_listener(home.config, entries):
        replaced = [f"{e['name']}://{home.address}" if e is affected else e[0] for e in entries]
        return {"advertised.listeners": ",".join(replaced)}
    return _second_listener(home, affected["name"], advertised)


def _second_listener(home: Visit, inter_broker: str, advertised: str) -> dict[str, str]:
    """Return the settings of another listener for this machine, as brokers need the present address."""
    listeners = home.config.get("listeners", advertised)
    taken = {int(entry["port"]) for entry in _ENTRY.finditer(f"{listeners},{advertised}")}
    port = home.address.port
    while port in taken and port + _OTHER_PORT <= 65_535:
        port += _OTHER_PORT
    protocols = home.config.get("listener.security.protocol.map", "")
    known = [entry for entry in protocols.split(",") if entry]
    protocol = next(
        (entry.partition(":")[2] for entry in known if entry.partition(":")[0] == inter_broker), "PLAINTEXT"
    )
    return {
        "listeners": f"{listeners},{_NEW_LISTENER}://:{port}",
        "advertised.listeners": f"{advertised},{_NEW_LISTENER}://{Address(home.address.host, port)}",
        "listener.security.protocol.map": ",".join([*known, f"{_NEW_LISTENER}:{protocol}"]),
        "inter.broker.listener.name": inter_broker,
    }


def _inter_broker_listener(config: Mapping[str, str], entries: Sequence[re.Match[str]]) -> str:
    named = config.get("inter.broker.listener.name", "").upper()
    return named or next((entry["name"] for entry in entries if entry["name"] == "PLAINTEXT"), entries[0]["name"])


def _address(entry: re.Match[str]) -> Address:
    return Address(entry["host"].strip("[]"), int(entry["port"]))


def is_nowhere(host: str) -> bool:
    """Return whether a host is an address to which no client can connect."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether a host means the local machine on every machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# The cluster as a whole


def _about_loopback(bootstrap: Sequence[Visit], brokers: Mapping[int, Visit]) -> Iterator[Finding]:
    """Yield the brokers on other machines that advertise the local machine."""
    if any(is_loopback(visit.address.host) for visit in bootstrap):
        return
    for broker_id, visit in brokers.items():
        if is_loopback(visit.address.host) and visit.failure is None:
            message = f"it advertises {visit.address}, where every client looks for it on its own machine"
            host = bootstrap[0].address.host
            advice = f"advertise a name by which clients find the broker's machine, such as {host}, instead"
            yield Finding(broker_id=broker_id, message=message, advice=advice)


def _about_bootstrap(view: View, bootstrap: Sequence[Visit]) -> Iterator[Finding]:
    for visit in bootstrap:
        if visit.view is not None and visit.view.cluster_id != view.cluster_id:
            found = f"at {visit.address} responds {visit.view.cluster_id}"
            message = f"the bootstrap addresses belong to several clusters: {found}"
            yield Finding(
                broker_id=None, message=message, advice=f"name addresses of {view.cluster_id} only, or of the other one"
            )
        if visit.failure is not None:
            message = f"no broker was reached at the bootstrap address {visit.address}: {visit.failure}"
            yield Finding(broker_id=None, message=message, advice=visit.remedy, is_problem=False)


def _about_controller(view: View) -> Iterator[Finding]:
    if view.controller_id not in view.brokers:
        message = "the cluster has no controller: topics cannot be created, and no leaders elected"
        yield Finding(broker_id=None, message=message, advice="see the brokers' logs, and ZooKeeper's")


def _about_stores(brokers: Mapping[int, Visit]) -> Iterator[Finding]:
    for broker_id, visit in brokers.items():
        if visit.reaches_store is False and visit.broker_id == broker_id:
            yield Finding(broker_id=broker_id, message=WITHOUT_STORE, advice=STORE_ADVICE)


def _about_directories(brokers: Mapping[int, Visit]) -> Iterator[Finding]:
    for broker_id, visit in brokers.items():
        if visit.broker_id == broker_id:
            for path in visit.failed_directories:
                yield Finding(broker_id=broker_id, message=about_directory(path), advice=DIRECTORY_ADVICE)
            if visit.refusing_logs:
                message = about_open_files(visit.refusing_logs)
                yield Finding(broker_id=broker_id, message=message, advice=OPEN_FILES_ADVICE)


def _about_disagreement(view: View, brokers: Mapping[int, Visit]) -> Iterator[Finding]:
    for broker_id, visit in brokers.items():
        if visit.view is None or visit.broker_id != broker_id or visit.view.cluster_id != view.cluster_id:
            continue
        missing = sorted(view.brokers.keys() ^ visit.view.brokers.keys())
        if missing:
            message = f"it has other members of the cluster than the others: see {_list(missing)}"
            yield Finding(
                broker_id=broker_id, message=message, advice="it may have lost the connection to the controller"
            )
        elif visit.view.controller_id != view.controller_id and not view.is_kraft:
            message = f"its controller is {visit.view.controller_id}, that of others {view.controller_id}"
            yield Finding(broker_id=broker_id, message=message, advice="if that lasts, it cannot reach the controller")


def _about_versions(brokers: Mapping[int, Visit]) -> Iterator[Finding]:
    served = {broker_id: visit.versions for broker_id, visit in brokers.items() if visit.versions}
    for api in dict.fromkeys(api for versions in served.values() for api in versions):
        ranges: dict[tuple[int, int] | None, list[int]] = {}
        for broker_id, versions in served.items():
            ranges.setdefault(versions.get(api), []).append(broker_id)
        if len(ranges) > 1:
            served_by = "; ".join(
                f"brokers {_list(ids)}: {'none' if found is None else '{}-{}'.format(*found)}"
                for found, ids in ranges.items()
            )
            message = f"the brokers serve different versions, of {api} first ({served_by}): is an upgrade in progress?"
            yield Finding(broker_id=None, message=message, is_problem=False)
            return


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
