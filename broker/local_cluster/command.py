"""``oncelog cluster``: a ZooKeeper server and several brokers on this machine, for development and experiments.

``oncelog cluster`` runs until an order or signal stops it, and everything that it started stops with it. The verbs,
such as ``oncelog cluster kill 2``, are orders to the one that runs in the same directory. Exit codes: 0 done, 1 it
could not be done, 2 wrong usage, 3 no cluster is running there.
"""

import asyncio
import datetime
import json
import random
import sys
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.broker.local_cluster.cluster_settings import addressee, brokers_with_listeners
from oncelog.broker.local_cluster.control_socket import MemberStatus, NotRunning, Order, Report, give_order
from oncelog.broker.local_cluster.slow_start import about_slow_start

if TYPE_CHECKING:
    from oncelog.broker.local_cluster.secured import Secured

DEFAULT_DIRECTORY: Final = "oncelog-cluster"
EXIT_FAILED: Final = 1
_STARTING: Final = frozenset({"start", "restart"})
_PATIENCE_SECONDS: Final = 3.0
EXIT_NOT_RUNNING: Final = 3


@click.group(
    "cluster",
    invoke_without_command=True,
    short_help="Run brokers and a ZooKeeper on this machine.",
    subcommand_metavar="[VERB MEMBER…]",
)
@click.option("--brokers", type=click.IntRange(1, 100), help="Number of brokers [default: 3, or as many as DIR has].")
@click.option("--dir", "directory", default=DEFAULT_DIRECTORY, show_default=True, help="Data, logs, and port numbers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of broker 1, the others follow; 0 takes free ones [default: 9092, or as in DIR].",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[ID:]KEY=VALUE",
    help="Setting of all brokers, or of one; repeatable.",
)
@click.option("--secure", is_flag=True, help="TLS, logins and access control, with files for an administrator in DIR.")
@click.pass_context
def cluster(
    context: click.Context,
    brokers: int | None,
    directory: str,
    port: int | None,
    settings: tuple[str, ...],
    secure: bool,
) -> None:
    """Run several brokers and a real ZooKeeper on this machine until Ctrl-C, and control them from another terminal.

    \b
    oncelog cluster --brokers 3
    oncelog cluster --secure --dir /tmp/s
    oncelog cluster --brokers 3 --dir /tmp/c --port 0 --set 1:broker.rack=a --set 2:broker.rack=b
    oncelog cluster status
    oncelog cluster kill 2; oncelog cluster start 2
    oncelog cluster --dir /tmp/c pause 1 zookeeper

    ZooKeeper needs Java, and its jars: those of PySpark (pip install 'pyspark>=4.2,<5'), or ONCELOG_ZOOKEEPER_JARS, or
    in a checkout those that `make cluster` fetches.
    """
    context.obj = Path(directory)
    if context.invoked_subcommand is None:
        sys.exit(_run(Path(directory), brokers, port, settings, secure=secure))
    if brokers is not None or port is not None or settings or secure:
        raise click.UsageError("--brokers, --port, --set and --secure are for starting a cluster")


def _run(directory: Path, brokers: int | None, port: int | None, settings: Sequence[str], *, secure: bool) -> int:
    """Run the cluster until a signal ends it."""
    from oncelog.broker.local_cluster.layout import LayoutError, check_ports, free_ports, plan_layout, read_layout
    from oncelog.broker.local_cluster.run import run_cluster
    from oncelog.broker.storage.disk import AlreadyLocked, LocalDisk

    directory = directory.resolve()
    rng = random.Random()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = LocalDisk().lock(str(directory / ".lock"))
        layout = plan_layout(read_layout(directory), brokers=brokers, port=port, free_ports=lambda: free_ports(rng))
        _check_settings(settings, layout.broker_ports)
        check_ports(layout, elsewhere=brokers_with_listeners(settings, layout.broker_ports))
        secured = _prepare_secured(directory, wanted=secure)
    except AlreadyLocked:
        return _complain(f"a cluster is running in {directory} already: `oncelog cluster --dir {directory} status`")
    except (LayoutError, OSError) as error:
        return _complain(f"the cluster cannot start: {error}")
    try:
        return asyncio.run(run_cluster(directory, layout, settings, secured))
    finally:
        lock.release()


def _prepare_secured(directory: Path, *, wanted: bool) -> "Secured | None":
    """Return the files of a secured cluster, also if it was one before: its data is not for everybody."""
    from oncelog.broker.local_cluster.secured import is_secured, prepare_secured

    if not wanted and not is_secured(directory):
        return None
    now = datetime.datetime.fromtimestamp(time.time_ns() / 1e9, datetime.UTC)
    return prepare_secured(directory, random.SystemRandom(), now)


def _check_settings(settings: Sequence[str], broker_ids: Container[int]) -> None:
    for setting in settings:
        if "=" not in setting:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        broker_id = addressee(setting)
        if broker_id is not None and broker_id not in broker_ids:
            raise click.BadParameter(f"{setting!r}: there is no broker {broker_id}", param_hint="--set")


def _complain(reason: str) -> int:
    click.echo(f"Error: {reason}", err=True)
    return EXIT_FAILED


def _verb(name: str, summary: str, *, needs_members: bool = True) -> None:
    """Add ``oncelog cluster NAME``."""

    @cluster.command(name, help=summary, short_help=summary)
    @click.argument("members", nargs=-1, required=needs_members, metavar="ID|zookeeper…" if needs_members else "[ID]…")
    @click.option("--dir", "directory", help="The cluster's directory.")
    @click.option("--format", "output", type=click.Choice(("table", "json")), default="table", show_default=True)
    @click.pass_obj
    def verb(default: Path, members: tuple[str, ...], directory: str | None, output: str) -> None:
        sys.exit(_order(Path(directory) if directory else default, Order(verb=name, members=members), output))


def _order(directory: Path, order: Order, output: str) -> int:
    try:
        report = asyncio.run(_carry_out(directory, order))
    except NotRunning as error:
        click.echo(f"Error: {error}: `oncelog cluster --dir {directory}` starts one", err=True)
        return EXIT_NOT_RUNNING
    if output == "json":
        click.echo(json.dumps([asdict(member) for member in report.members], indent=2))
    elif report.members:
        click.echo(format_members(report.members))
    for problem in report.problems:
        click.echo(f"Error: {problem}", err=True)
    return EXIT_FAILED if report.problems else 0


async def _carry_out(directory: Path, order: Order) -> Report:
    """Give an order, and print what it waits for if brokers start slowly. Raises ``NotRunning``."""
    if order.verb not in _STARTING:
        return await give_order(directory, order)
    async with asyncio.TaskGroup() as group:
        noting = group.create_task(_note_slow_start(directory, order.members))
        report = await _attempt(directory, order)
        noting.cancel()
    if isinstance(report, NotRunning):
        raise report
    return report


async def _attempt(directory: Path, order: Order) -> Report | NotRunning:
    try:
        return await give_order(directory, order)
    except NotRunning as error:
        return error


async def _note_slow_start(directory: Path, members: tuple[str, ...]) -> None:
    """Print, once, what the members wait for that are still starting after a few seconds."""
    noted = False
    while not noted:
        await asyncio.sleep(_PATIENCE_SECONDS)
        report = await _attempt(directory, Order(verb="status", members=members))
        if isinstance(report, NotRunning):
            return
        for status in report.members:
            if status.state == "starting":
                click.echo(about_slow_start(status), err=True)
                noted = True


def format_members(members: Iterable[MemberStatus]) -> str:
    """Return a table for people."""
    rows = [("MEMBER", "STATE", "PID", "ADDRESS")]
    rows += [(member.member, member.state, str(member.pid or "-"), member.address) for member in members]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


_verb("status", "Show each process: its state, pid and address.", needs_members=False)
_verb("kill", "End processes at once, as kill -9 does.")
_verb("pause", "Freeze processes (SIGSTOP): they keep connections and sessions, and send no responses.")
_verb("resume", "Let paused processes go on (SIGCONT).")
_verb("stop", "Shut processes down in order (SIGTERM), one after the other.")
_verb("start", "Start processes that do not run; return when they serve.")
_verb("restart", "Stop processes in order and start them again, one after the other.")
