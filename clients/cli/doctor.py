"""``oncelog doctor``: visits a cluster as a client does, and says what keeps this machine from using it.

Every address that brokers advertise is visited, and where one is out of reach, the places where that broker might be
instead. What the visits mean is ``oncelog.clients.cli.diagnosis``. The problems of ``oncelog health`` that visits do
not show are reported as well.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import click

from oncelog.clients.cli.broker_visit import Means, visit_all
from oncelog.clients.cli.client_rights import ClientUse, Standing, examine_rights, findings
from oncelog.clients.cli.diagnosis import Finding, View, Visit, candidates, diagnose
from oncelog.clients.cli.output import format_json
from oncelog.clients.cli.seen_cluster import see_cluster
from oncelog.clients.cli.session import NO_BROKER, REFUSED, Session, complain, example, with_session
from oncelog.clients.cli.waiting import PATIENCE_SECONDS, advice_without_broker
from oncelog.clients.errors import BrokerSilent, ClientError
from oncelog.clients.principal import principal_of
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.printable import without_controls

_VISIT_SECONDS: Final = 5.0
_NO_USE: Final = ClientUse()
_COLUMNS: Final = ("broker", "advertised", "resolves_to", "reached", "controller", "produce", "fetch")


@click.command(
    epilog=example(
        "oncelog doctor",
        "oncelog doctor --bootstrap broker1:9092",
        "oncelog doctor --command-config client.properties --produce orders --transactional-id shop-1",
        "oncelog doctor --command-config client.properties --consume orders --group shop",
    )
)
@click.option("--produce", multiple=True, metavar="TOPIC", help="Topic to which the client writes; repeatable.")
@click.option("--consume", multiple=True, metavar="TOPIC", help="Topic that the client reads; repeatable.")
@click.option("--group", "groups", multiple=True, metavar="ID", help="Consumer group of the client; repeatable.")
@click.option(
    "--transactional-id",
    "transactional_ids",
    multiple=True,
    metavar="ID",
    help="Transactional id of the client; repeatable.",
)
@with_session()
def doctor(session: Session, /, **use: Any) -> None:
    """Find out why this machine cannot use a cluster that it can connect to, and which setting to change.

    Prints, for each broker, the address that it advertises, whether this machine can resolve and reach it, and what to
    set if not, and the other problems that `oncelog health` reports. With --produce, --consume, --group and
    --transactional-id it names the rights that the client of --command-config lacks for these. The exit code is 1 if
    there is a problem.
    """
    examination = asyncio.run(_examine_aloud(session, ClientUse(**use)))
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


class Examination:
    """All visits, and what was found."""

    def __init__(self, bootstrap: list[Visit]) -> None:
        self.bootstrap = bootstrap
        self.view = next((visit.view for visit in bootstrap if visit.view is not None), None)
        self.brokers: dict[int, Visit] = {}
        self.findings: list[Finding] = []
        self.rights: dict[str, str] = {}
        """Who the client is, and how many of the rights that it needs it has; empty if that was not requested."""


async def _examine_aloud(session: Session, use: ClientUse) -> Examination:
    """Examine the cluster, and say within seconds that it takes a while, unless the output is JSON."""
    where = ", ".join(map(str, session.bootstrap))
    note = partial(complain, f"Warning: still waiting for responses: from {where}, or from brokers that it names")
    patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, note)
    if session.output == "json":
        patience.cancel()
    try:
        return await examine(session, use)
    finally:
        patience.cancel()


async def examine(session: Session, use: ClientUse = _NO_USE) -> Examination:
    """Return what visits to the brokers show, the other problems of the cluster, and the rights that ``use`` lacks."""
    seconds = min(session.timeout_seconds, _VISIT_SECONDS)
    security, login = session.security, session.security.login
    sasl = None if login is None else SaslClient(login)
    visit = partial(visit_all, means=Means(seconds, security, security.make_tls_context(), sasl))
    examination = Examination(await visit(session.bootstrap))
    view = examination.view
    if view is None:
        return examination
    here = next(visit.address for visit in examination.bootstrap if visit.view is view)
    async with asyncio.TaskGroup() as group:
        health = group.create_task(_problems_beyond_visits(replace(session, bootstrap=[here])))
        rights = group.create_task(_examine_rights(replace(session, bootstrap=[here]), use, examination))
        visits = await visit(view.brokers.values())
    examination.brokers = dict(zip(view.brokers, visits, strict=True))
    hosts = [visit.address for visit in examination.bootstrap if visit.failure is None]
    lost = [
        visit.address
        for broker_id, visit in examination.brokers.items()
        if visit.failure is not None or visit.broker_id not in (None, broker_id)
    ]
    places = dict.fromkeys(place for address in lost for place in candidates(address, hosts))
    elsewhere = await visit(places)
    others = [Finding(broker_id=None, message=problem) for problem in health.result()]
    found = diagnose(view, examination.bootstrap, examination.brokers, elsewhere)
    examination.findings = [*others, *rights.result(), *found]
    return examination


async def _examine_rights(session: Session, use: ClientUse, examination: Examination) -> list[Finding]:
    """Return what is to be said of the rights that the client needs, and note how many it has."""
    if not use.rights:
        return []
    principal = principal_of(session.security)
    try:
        async with asyncio.timeout(session.timeout_seconds), session.cluster() as cluster:
            standings = await examine_rights(cluster, use)
    except (ClientError, TimeoutError) as error:
        why = str(error) or f"no response within {session.timeout_seconds:g} s"
        return [Finding(broker_id=None, message=f"the rights of {principal.description} are unknown: {why}")]
    granted = list(standings.values()).count(Standing.GRANTED)
    examination.rights = {"principal": principal.description, "rights": f"{granted} of {len(standings)}"}
    return list(findings(standings, principal))


async def _problems_beyond_visits(session: Session) -> list[str]:
    """Return the problems that ``oncelog health`` reports, and visits to brokers do not show."""
    try:
        async with asyncio.timeout(session.timeout_seconds), session.cluster() as cluster:
            return (await see_cluster(cluster)).beyond_visits
    except (ClientError, TimeoutError) as error:
        why = str(error) or f"no response within {session.timeout_seconds:g} s"
        return [f"the state of the partitions is unknown: {why}"]


def _show(session: Session, examination: Examination, view: View) -> None:
    fields = {"cluster_id": view.cluster_id, "controller": view.controller_id, **examination.rights}
    fields["found"] = _found(examination.findings)
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
