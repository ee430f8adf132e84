"""``oncelog doctor``: visits a cluster as a client does, and says what keeps this machine from using it.

Every address that brokers advertise is visited, and where one is out of reach, the places where that broker might be
instead. What the visits mean is ``oncelog.clients.cli.diagnosis``. The problems of ``oncelog health`` that visits do
not show are reported as well.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, NamedTuple

import click

from oncelog.clients.cli.diagnosis import LISTENER_KEYS, Finding, View, Visit, candidates, diagnose
from oncelog.clients.cli.directories import failed_directories
from oncelog.clients.cli.listener_probe import other_protocol
from oncelog.clients.cli.metadata_store import reaches_store
from oncelog.clients.cli.output import format_json
from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.clients.cli.session import NO_BROKER, REFUSED, Session, complain, example, with_session
from oncelog.clients.cli.waiting import PATIENCE_SECONDS, advice_without_broker
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import BrokerSilent, ClientError, TlsFailed, Unreachable
from oncelog.clients.sasl import SaslClient
from oncelog.clients.security_config import SecurityConfig
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.printable import without_controls

_VISIT_SECONDS: Final = 5.0
_BROKER_RESOURCE: Final = 4
_KRAFT_FEATURE: Final = "metadata.version"
_COLUMNS: Final = ("broker", "advertised", "resolves_to", "reached", "controller", "produce", "fetch")


@click.command(epilog=example("oncelog doctor", "oncelog doctor --bootstrap broker1:9092"))
@with_session()
def doctor(session: Session) -> None:
    """Find out why this machine cannot use a cluster that it can connect to, and which setting to change.

    Prints, for each broker, the address that it advertises, whether this machine can resolve and reach it, and what to
    set if not, and the other problems that `oncelog health` reports. The exit code is 1 if there is a problem.
    """
    examination = asyncio.run(_examine_aloud(session))
    if examination.view is None:
        _explain_absence(session, examination.bootstrap)
        raise click.exceptions.Exit(NO_BROKER)
    _show(session, examination, examination.view)
    if any(finding.is_problem for finding in examination.findings):
        raise click.exceptions.Exit(REFUSED)


def _explain_absence(session: Session, visits: list[Visit]) -> None:
    """Print why no bootstrap address was reached, and what to do about it."""
    failures = [str(visit.failure).removesuffix(BrokerSilent.CAUSES) for visit in visits]
    for visit, failure in zip(visits, failures, strict=True):
        click.echo(without_controls(f"Error: {visit.address}: {failure}"), err=True)
    is_silent = any(visit.is_silent for visit in visits)
    usual = advice_without_broker(session.bootstrap, is_silent=is_silent, reasons="; ".join(failures))
    for advice in dict.fromkeys(visit.remedy for visit in visits if visit.remedy) or [usual]:
        click.echo(f"  {advice}", err=True)


class Means(NamedTuple):
    """With what to connect."""

    seconds: float
    security: SecurityConfig
    tls: ssl.SSLContext | None
    sasl: SaslClient | None


class Examination:
    """All visits, and what was found."""

    def __init__(self, bootstrap: list[Visit]) -> None:
        self.bootstrap = bootstrap
        self.view = next((visit.view for visit in bootstrap if visit.view is not None), None)
        self.brokers: dict[int, Visit] = {}
        self.findings: list[Finding] = []


async def _examine_aloud(session: Session) -> Examination:
    """Examine the cluster, and say within seconds that it takes a while, unless the output is JSON."""
    where = ", ".join(map(str, session.bootstrap))
    note = partial(complain, f"Warning: still waiting for responses: from {where}, or from brokers that it names")
    patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, note)
    if session.output == "json":
        patience.cancel()
    try:
        return await examine(session)
    finally:
        patience.cancel()


async def examine(session: Session) -> Examination:
    """Return what visits to the brokers show, and the other problems of the cluster."""
    seconds = min(session.timeout_seconds, _VISIT_SECONDS)
    security, login = session.security, session.security.login
    sasl = None if login is None else SaslClient(login)
    visit_all = partial(_visit_all, means=Means(seconds, security, security.make_tls_context(), sasl))
    examination = Examination(await visit_all(session.bootstrap))
    view = examination.view
    if view is None:
        return examination
    here = next(visit.address for visit in examination.bootstrap if visit.view is view)
    async with asyncio.TaskGroup() as group:
        health = group.create_task(_problems_beyond_visits(replace(session, bootstrap=[here])))
        visits = await visit_all(view.brokers.values())
    examination.brokers = dict(zip(view.brokers, visits, strict=True))
    hosts = [visit.address for visit in examination.bootstrap if visit.failure is None]
    lost = [
        visit.address
        for broker_id, visit in examination.brokers.items()
        if visit.failure is not None or visit.broker_id not in (None, broker_id)
    ]
    places = dict.fromkeys(place for address in lost for place in candidates(address, hosts))
    elsewhere = await visit_all(places)
    others = [Finding(broker_id=None, message=problem) for problem in health.result()]
    examination.findings = [*others, *diagnose(view, examination.bootstrap, examination.brokers, elsewhere)]
    return examination


async def _problems_beyond_visits(session: Session) -> list[str]:
    """Return the problems that ``oncelog health`` reports, and visits to brokers do not show."""
    try:
        async with asyncio.timeout(session.timeout_seconds), session.cluster() as cluster:
            return (await see_cluster(cluster)).beyond_visits
    except (ClientError, TimeoutError) as error:
        why = str(error) or f"no response within {session.timeout_seconds:g} s"
        return [f"the state of the partitions is unknown: {why}"]


async def _visit_all(addresses: Iterable[Address], means: Means) -> list[Visit]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_visit(address, means)) for address in addresses]
    return [task.result() for task in tasks]


async def _visit(address: Address, means: Means) -> Visit:
    seconds = means.seconds
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return Visit(address=address, failure="no response from the name service")
    except (OSError, UnicodeError):
        return Visit(address=address, failure=f"the name {address.host} {Unreachable.UNRESOLVED} by this machine")
    resolved = tuple(dict.fromkeys(str(each[4][0]) for each in found))
    connection: Connection | None = None
    accepted: list[Address] = []
    try:
        connection = await connect(
            address,
            client_id="oncelog-cli",
            connect_seconds=seconds,
            request_seconds=seconds,
            tls=means.tls,
            sasl=means.sasl,
            on_accepted=lambda: accepted.append(address),
        )
        return await _talk(address, resolved, connection)
    except ClientError as error:
        return await _failed(
            Visit(address=address, resolved=resolved), error, means, is_mute=bool(accepted) and connection is None
        )
    finally:
        if connection is not None:
            connection.close()


async def _failed(visit: Visit, error: ClientError, means: Means, *, is_mute: bool) -> Visit:
    """Return the visit with why it failed, and what to set if that is known.

    ``is_mute``: the connection was accepted, and no broker introduced itself on it.
    """
    reason = str(error).removeprefix(f"{visit.address}: ")
    if isinstance(error, TlsFailed):
        return replace(visit, failure=reason.removesuffix(f": {error.advice}"), remedy=error.advice or None)
    other = await other_protocol(visit.address, means.security, means.seconds) if is_mute else None
    if other is not None:
        return replace(visit, failure=other.reason, remedy=other.advice)
    return replace(visit, failure=reason, is_silent=isinstance(error, BrokerSilent))


async def _talk(address: Address, resolved: tuple[str, ...], connection: Connection) -> Visit:
    metadata = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    brokers = {each.node_id: Address(each.host, each.port) for each in metadata.brokers}
    controller = metadata.controller_id if metadata.controller_id in brokers else None
    broker_id, config = await _who(connection, brokers)
    return Visit(
        address=address,
        resolved=resolved,
        view=View(
            cluster_id=metadata.cluster_id,
            controller_id=controller,
            brokers=brokers,
            is_kraft=_KRAFT_FEATURE in connection.versions.features.levels,
        ),
        broker_id=broker_id,
        config=config,
        versions=_versions(connection),
        reaches_store=None if broker_id is None else await reaches_store(connection, broker_id),
        failed_directories=(failed := await failed_directories(connection)).paths,
        refusing_logs=failed.refusing_logs,
    )


async def _who(connection: Connection, brokers: Iterable[int]) -> tuple[int | None, dict[str, str]]:
    """Return which of these brokers it is, and its listeners: a broker describes only its own configuration."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=list(LISTENER_KEYS)
            )
            for broker_id in brokers
        ]
    )
    try:
        described = await connection.send(request, DescribeConfigsResponse)
    except ClientError:
        return None, {}
    for result in described.results:
        if not result.error_code and result.resource_name.isdecimal():
            config = {each.name: each.value for each in result.configs if each.value}
            return int(result.resource_name), config
    return None, {}


def _versions(connection: Connection) -> dict[str, tuple[int, int]]:
    served = {key.name: connection.versions.range_of(key) for key in ApiKey}
    return {name: (found.first, found.last) for name, found in served.items() if found is not None}


def _show(session: Session, examination: Examination, view: View) -> None:
    fields = {"cluster_id": view.cluster_id, "controller": view.controller_id, "found": _found(examination.findings)}
    rows = [_row(broker_id, visit, view) for broker_id, visit in sorted(examination.brokers.items())]
    if session.output == "json":
        findings = [asdict(finding) for finding in examination.findings]
        click.echo(format_json({**fields, "brokers": rows, "findings": findings}))
        return
    session.show_record(fields, "brokers", rows, _COLUMNS)
    for finding in examination.findings:
        click.echo(without_controls("\n" + "\n".join(_lines(finding))))


def _found(findings: list[Finding]) -> str:
    problems = sum(finding.is_problem for finding in findings)
    return f"{problems} problem{'' if problems == 1 else 's'}"


def _row(broker_id: int, visit: Visit, view: View) -> dict[str, Any]:
    return {
        "broker": broker_id,
        "advertised": str(visit.address),
        "resolves_to": list(visit.resolved) or None,
        "reached": visit.failure is None,
        "controller": broker_id == view.controller_id,
        "produce": _range(visit, ApiKey.PRODUCE),
        "fetch": _range(visit, ApiKey.FETCH),
    }


def _range(visit: Visit, api: ApiKey) -> str | None:
    served = visit.versions.get(api.name)
    return None if served is None else f"{served[0]}-{served[1]}"


def _lines(finding: Finding) -> Iterable[str]:
    subject = "" if finding.broker_id is None else f"broker {finding.broker_id}: "
    yield f"{'Problem' if finding.is_problem else 'Note'}: {subject}{finding.message}"
    if finding.change:
        yield f"  set at broker {finding.broker_id}:"
    for key, value in finding.change.items():
        yield f"    {key}={value}"
    if finding.advice:
        yield f"  {finding.advice}"
