"""The run of ``oncelog cluster``: from the first process to the last, in one event loop.

A signal stops it in order; a second one kills everything at once. A start that fails, or that a signal interrupts, is
taken back, and its ports are not kept for the next start. Standard output gets what a user wants to know: addresses,
orders, and processes that end by themselves.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from oncelog.broker.local_cluster.cluster_settings import default_settings, settings_of
from oncelog.broker.local_cluster.control_socket import MemberStatus, serve_control
from oncelog.broker.local_cluster.layout import Layout, write_layout
from oncelog.broker.local_cluster.local_cluster import LocalCluster
from oncelog.broker.local_cluster.member_process import Refused
from oncelog.broker.local_cluster.members import MemberSettings
from oncelog.broker.local_cluster.secured import Secured
from oncelog.broker.process.supervisor import Supervisor

_EXIT_FAILED: Final = 1


async def run_cluster(directory: Path, layout: Layout, given: Sequence[str], secured: Secured | None = None) -> int:
    """Run a cluster until a signal; return the exit code. ``given``: the user's settings."""
    count = len(layout.broker_ports)
    settings = partial(_settings_of, layout, given, secured)
    cluster = LocalCluster(directory, layout, settings, _say, None if secured is None else secured.zookeeper)
    tasks = Supervisor("cluster")
    stopping = _stop_on_signals(cluster)
    try:
        started = asyncio.get_running_loop().time()
        _say(f"starting ZooKeeper and {count} broker{'s' if count > 1 else ''}, data and logs in {directory}")
        starting = tasks.spawn(cluster.start(), "start", on_done=lambda _: None)
        ends: list[asyncio.Future[Any]] = [starting, stopping]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            write_layout(directory, layout)
            server = await serve_control(directory, cluster.execute, tasks.spawn)
            _say_secured(secured)
            _introduce(cluster, count, given, asyncio.get_running_loop().time() - started)
            await asyncio.wait([stopping])
            server.close()
        _say(f"{stopping.result()}: stopping the brokers, then ZooKeeper")
    except (Refused, OSError) as refused:
        _say(str(refused), error=True)
        return _EXIT_FAILED
    finally:
        await tasks.stop()
        await cluster.stop()
    _say("stopped")
    return 0


def _settings_of(layout: Layout, given: Sequence[str], secured: Secured | None, broker_id: int) -> MemberSettings:
    overrides = settings_of(broker_id, len(layout.broker_ports), given)
    if secured is None:
        return MemberSettings(overrides)
    if not any(text.startswith("listeners=") for text in overrides):
        overrides.append(f"listeners=SASL_SSL://localhost:{layout.broker_ports[broker_id]}")
    return MemberSettings(overrides, secured.settings)


def _stop_on_signals(cluster: LocalCluster) -> "asyncio.Future[str]":
    """Return a future that is done, with its name, at the first signal that ends the cluster."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        if not stopping.done():
            stopping.set_result(number.name)
            return
        _say(f"{number.name} again: killing everything")
        cluster.kill_at_once()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    return stopping


def _introduce(cluster: LocalCluster, count: int, given: Sequence[str], seconds: float) -> None:
    for status in cluster.status():
        _say(_line(status))
    kept = {text.partition("=")[0].strip() for text in given}
    settings = [f"{key}={value}" for key, value in default_settings(count).items() if key not in kept]
    if settings:
        _say(f"set, as there are {count}: {', '.join(settings)}")
    addresses = ",".join(broker.address for broker in cluster.brokers)
    _say(f"[OncelogCluster brokers={count}] started at {addresses}, after {seconds:.1f} s")


def _say_secured(secured: Secured | None) -> None:
    if secured is not None:
        path = os.path.relpath(secured.admin)
        _say(f"secured by TLS, logins and access control lists; commands need --command-config {path}")


def _line(status: MemberStatus) -> str:
    name = f"broker {status.member}" if status.member.isdecimal() else "ZooKeeper"
    return f"{name:<10} {status.address:<21} pid {status.pid}, log {os.path.relpath(status.log)}"


def _say(text: str, *, error: bool = False) -> None:
    click.echo(f"Error: {text}" if error else text, err=error)
