"""``oncelog serve``: one broker in this process, on the real clock, disk, network and event loop.

The only file that knows uvloop, signals, exit codes and standard output. Standard output gets one line, when the broker
is ready; everything else goes to the log on standard error. A configuration that is refused, and a start that fails,
is one sentence and an exit code, not a traceback.
"""

import asyncio
import errno
import gc
import logging
import os
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any, Final, NoReturn

import click
import uvloop

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners, advertised_as_loopback, parse_http_listener, parse_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import LoadedConfig, load_config
from oncelog.broker.network.side_loop import ThreadSideLoop
from oncelog.broker.parts import Broker
from oncelog.broker.process.heap import GIVE_BACK_SECONDS, Heap
from oncelog.broker.process.log_output import LogHandler
from oncelog.broker.start import start_broker
from oncelog.broker.start_again import start_again
from oncelog.broker.storage.disk import AlreadyLocked, LocalDisk
from oncelog.broker.storage.meta_properties import InvalidMetaProperties
from oncelog.clients import VERSION
from oncelog.coordinator.controller.finalized_features import IncompatibleFeatures
from oncelog.coordinator.controller.membership import BrokerIdTaken, EndpointTaken
from oncelog.coordinator.metadata_store.store import StoreUnavailable

logger = logging.getLogger("oncelog")

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
_STOP_SECONDS: Final = 30
_GC_THRESHOLDS: Final = (5_000, 3, 3_000)
"""A broker makes many objects that live long and few that form cycles. So a full collection, which takes half a second
with ten thousand topics, is of little use. The others look at 5,000 and 20,000 new objects, which takes milliseconds;
at a million, as it was before, hundreds of them."""
_FEW_FILES: Final = 10_000
_SPARE_DESCRIPTORS: Final = 256


class Stopped(Exception):
    """The broker has run and ended otherwise than in order. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of the command, as given."""

    port: int | None
    host: str | None
    data_dir: str | None
    broker_id: int | None
    zookeeper: str | None
    properties: IO[str] | None
    overrides: tuple[str, ...]
    ready_file: str | None
    log_level: str

    def settings(self) -> Iterator[str]:
        """Yield all settings, as ``key=value``: those of options with a name of their own, then those of ``--set``."""
        if self.port is not None or self.host is not None:
            yield f"listeners=PLAINTEXT://{self.host or 'localhost'}:{9092 if self.port is None else self.port}"
        if self.data_dir is not None:
            yield f"log.dirs={self.data_dir}"
        if self.broker_id is not None:
            yield f"broker.id={self.broker_id}"
        if self.zookeeper is not None:
            yield f"zookeeper.connect={self.zookeeper}"
        yield from self.overrides


@click.command("serve", short_help="Run a broker.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one. Default: 9092.")
@click.option("--host", help="Address to listen on. Default: localhost.")
@click.option("--data-dir", help="Data directory (log.dirs). Default: oncelog-data.")
@click.option("--broker-id", type=int, help="This broker's id (broker.id).")
@click.option("--zookeeper", help="Join the cluster on ZooKeeper at HOST:PORT,…/CHROOT (zookeeper.connect).")
@click.option(
    "--config", "properties", type=click.File(encoding="utf-8"), help="A server.properties file with settings."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting; repeatable.")
@click.option("--ready-file", help="Write host:port to this file when the broker is ready.")
@click.option("--log-level", default="INFO", show_default=True, help="Level of the log on standard error.")
def command(**given: Any) -> None:
    """Run one broker: alone on the embedded metadata store, or as a member of a cluster on ZooKeeper.

    \b
    oncelog serve --data-dir ./data
    oncelog serve --data-dir ./data-1 --broker-id 1 --port 9092 --zookeeper localhost:2181/oncelog
    oncelog serve --port 0 --ready-file /tmp/address --set num.partitions=3
    """
    options = _Options(**given)
    _configure_logging(options.log_level)
    _raise_file_limit()
    try:
        loaded = load_config(
            properties=options.properties.read() if options.properties is not None else "",
            environment=os.environ,
            overrides=options.settings(),
        )
        loaded = replace(loaded, config=_with_absolute_data_dir(loaded.config))
        _tell(loaded)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reason = runner.run(_serve(loaded, options.ready_file))
    except ConfigError as error:
        _refuse(str(error), EXIT_CONFIG)
    except AlreadyLocked as error:
        holder = "" if error.holder is None else f" (process {error.holder})"
        reason = f"the data directory is in use by another broker{holder}: {error} is locked"
        _refuse(f"{reason}; choose another directory with log.dirs (--data-dir)", EXIT_FAILED)
    except InvalidMetaProperties as error:
        _refuse(f"the data directory is not this broker's: {error}", EXIT_FAILED)
    except (IncompatibleFeatures, StoreUnavailable, BrokerIdTaken, EndpointTaken) as error:
        _refuse(f"the broker cannot start: {error}", EXIT_FAILED)
    except Stopped as error:
        _refuse(str(error), EXIT_FAILED)
    except OSError as error:
        _refuse(f"the broker cannot start: {_text(error)}{_remedy(error)}", EXIT_FAILED)
    if reason is not None:
        sys.exit(EXIT_FAILED)


def _text(error: OSError) -> str:
    """Return what went wrong, without the number of the error."""
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"


def _remedy(error: OSError) -> str:
    """Return which setting to look at."""
    match error.errno:
        case errno.EADDRINUSE | errno.EADDRNOTAVAIL:
            return "; choose another address with listeners (--port, --host), or port 0 for any that is free"
        case errno.ENOENT | errno.EACCES | errno.EPERM | errno.EROFS | errno.ENOTDIR:
            return "; log.dirs (--data-dir) must be a directory that this user may create and write to"
        case errno.EMFILE:
            return "; each segment and each connection is an open file: raise the limit with ulimit -n"
        case errno.ENOSPC:
            return "; the disk of log.dirs (--data-dir) is full"
        case _:
            return ""


def _with_absolute_data_dir(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with an absolute data directory: clients see it in responses."""
    data_dir = os.path.abspath(config.data_dir)
    if config.log_dirs:
        return replace(config, log_dirs=data_dir, given={**config.given, "log.dirs": data_dir})
    given = {**config.given, "log.dir": data_dir} if "log.dir" in config.given else config.given
    return replace(config, log_dir=data_dir, given=given)


async def _check_hosts(config: BrokerConfig) -> None:
    """Raise ``ConfigError``, before anything is written, for a host to listen on that this machine does not know."""
    listens = [("listeners (--host)", each.host, each.port) for each in parse_listeners(config).bound]
    if config.oncelog_http_listener is not None:
        listens.append(("oncelog.http.listener", *parse_http_listener(config.oncelog_http_listener)))
    for setting, host, port in listens:
        try:
            await asyncio.get_running_loop().getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ConfigError(f"{setting}: this machine does not know the host {host} ({error.strerror})") from None


async def _serve(loaded: LoadedConfig, ready_file: str | None) -> str | None:
    """Run until a signal, or until the broker cannot go on: then the reason is returned."""
    started = time.perf_counter()
    await _check_hosts(loaded.config)
    side_loop = ThreadSideLoop()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as start:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _on_signal, number, stop, start)
            broker = await start_again(
                lambda: start_broker(
                    loaded.config,
                    disk=LocalDisk(spare_descriptors=_spare_descriptors()),
                    wall_clock=_wall_clock,
                    rng=random.SystemRandom(),  # Nonces and ids that no client may predict.
                    side_loop=side_loop,
                )
            )
    except TimeoutError:
        if not stop.is_set():
            raise
        side_loop.close()
        logger.info("stopped before the start was complete")
        return None
    _tune_collector()
    heap = Heap()
    heap.keep_buffers()
    broker.supervisor.repeat(heap.give_back, "give back free memory", GIVE_BACK_SECONDS)
    broker.failure.add_done_callback(lambda _: stop.set())
    _warn_of_addresses(broker.listeners, loaded.config.advertised_listeners is not None)
    try:
        _announce(broker, ready_file, time.perf_counter() - started)
    except OSError as error:
        await _stop(broker)
        raise Stopped(f"the ready file {ready_file} cannot be written: {error.strerror or error}") from error
    for warning in loaded.warnings:  # Once more: those at the beginning are above many lines by now.
        logger.warning("%s", warning)
    await stop.wait()
    await _stop(broker)
    side_loop.close()
    rest = "" if broker.log_manager.is_closed_cleanly else ", not cleanly: the next start recovers the logs"
    logger.info("[KafkaServer id=%d] shut down completed%s", broker.broker_id, rest)
    return broker.failure.result() if broker.failure.done() else None


async def _stop(broker: Broker) -> None:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await broker.stop()
    except TimeoutError as error:
        raise Stopped(f"the broker did not stop in order within {_STOP_SECONDS} s") from error
    except OSError as error:
        raise Stopped(f"the broker did not stop in order: {error}{_remedy(error)}") from error


def _warn_of_addresses(listeners: Listeners, chosen: bool) -> None:
    """Log a warning if ``localhost`` is advertised: clients of other machines would connect to themselves."""
    for listener in advertised_as_loopback(listeners):
        advice = f"set advertised.listeners={replace(listener, host=socket.gethostname())} if clients are elsewhere"
        logger.log(
            logging.INFO if chosen else logging.WARNING,
            "Other machines can connect, but the advertised address %s is on the client's own machine: %s",
            listener,
            advice,
        )


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _on_signal(number: signal.Signals, stop: asyncio.Event, start: asyncio.Timeout) -> None:
    """End the start, if it goes on, or the run."""
    if stop.is_set():
        logger.warning("%s again: stopping at once", number.name)
        os._exit(128 + number)
    logger.info("%s: shutting down", number.name)
    stop.set()
    with suppress(RuntimeError):  # The start is over.
        start.reschedule(asyncio.get_running_loop().time())


def _raise_file_limit() -> None:
    """Raise the limit of open files: every segment and connection is one, and a process mostly gets 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _FEW_FILES:
        logger.warning("Only %d files may be open at once, one for each segment and connection: raise ulimit -n", hard)


def _spare_descriptors() -> int:
    """Return how many descriptors connections cannot have, because logs may need them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft // 8, _SPARE_DESCRIPTORS) if soft != resource.RLIM_INFINITY else _SPARE_DESCRIPTORS


def _tune_collector() -> None:
    """Exclude what the start has loaded from garbage collection: it stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _announce(broker: Broker, ready_file: str | None, seconds: float) -> None:
    first = next(iter(broker.listeners.advertised.values()))
    addresses = ", ".join(map(str, broker.listeners.advertised.values()))
    if ready_file is not None:
        LocalDisk().write_atomic(ready_file, f"{first.host}:{first.port}\n".encode())
    print(
        f"[KafkaServer id={broker.broker_id}] started (oncelog {VERSION}) at {addresses}, "
        f"data in {broker.config.data_dir}, after {seconds:.3f} s",
        flush=True,
    )


def _configure_logging(level: str) -> None:
    if level.upper() not in logging.getLevelNamesMapping():
        _refuse(f"--log-level {level} is not valid: expected DEBUG, INFO, WARNING or ERROR", EXIT_CONFIG)
    logging.basicConfig(level=level.upper(), handlers=[LogHandler(sys.stderr)])


def _tell(loaded: LoadedConfig) -> None:
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    for remark in loaded.remarks:
        logger.info("%s", remark)


def _refuse(reason: str, exit_code: int) -> NoReturn:
    print(f"oncelog: {reason}", file=sys.stderr)
    sys.exit(exit_code)
