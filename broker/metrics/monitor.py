"""The two pages of a broker: ``/metrics`` for Prometheus, ``/ready`` for load balancers and operators.

The families are Kafka's, by the names under which the JMX exporter shows them in the usual dashboards; what Kafka has
nothing for is ours. ``docs/reference/metrics.md`` lists them. A page that cannot be shown is 500, and the log has the
reason.
"""

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from oncelog.broker.config.listeners import parse_http_listener
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.metrics.cleaner_metrics import cleaner_metrics
from oncelog.broker.metrics.cluster_metrics import controller_metrics, feature_metrics, session_metrics
from oncelog.broker.metrics.consumer_lag import consumer_families
from oncelog.broker.metrics.exposition import CONTENT_TYPE, Families, write_families
from oncelog.broker.metrics.group_metrics import group_metrics
from oncelog.broker.metrics.http_endpoint import HttpEndpoint, Page
from oncelog.broker.metrics.loop_idle import LoopIdle
from oncelog.broker.metrics.loop_lag import BOUNDS, LoopLag
from oncelog.broker.metrics.partition_metrics import Clock, led_partition_metrics, log_metrics, replica_metrics
from oncelog.broker.metrics.process_metrics import disk_metrics, idle_metrics, read_io_counts
from oncelog.broker.metrics.quota_metrics import quota_metrics
from oncelog.broker.metrics.request_metrics import request_metrics, requests_of, traffic_metrics
from oncelog.broker.metrics.response_errors import ResponseErrors
from oncelog.broker.metrics.topic_metrics import topic_metrics
from oncelog.broker.metrics.transaction_metrics import transaction_metrics, verification_metrics
from oncelog.broker.network.socket_server import SocketServer
from oncelog.broker.peers.partition_ends import PartitionEnds
from oncelog.broker.process.supervisor import Supervisor
from oncelog.coordinator.metadata_store.session_health import WITHOUT_ZOOKEEPER, SessionState
from oncelog.coordinator.ports import BrokerChannel

if TYPE_CHECKING:
    from oncelog.broker.dispatch.dispatcher import Dispatcher
    from oncelog.broker.parts import Broker

logger = logging.getLogger(__name__)

_KEEPS_FAILING: Final = 2
"""Failures in a row of a background task that are shown beside ``ready``."""


class Monitor:
    """Made before the broker, so that what it counts is counted from the first request on."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.errors = ResponseErrors()
        self._lag = LoopLag()
        self._idle = LoopIdle()
        self._endpoint = HttpEndpoint(supervisor)
        registry = CollectorRegistry()
        self._of_the_process = [ProcessCollector(registry=registry), GCCollector(registry=registry)]

    async def listen(self, address: str) -> None:
        """Open ``host:port``; an empty host is every interface. Raises ``ConfigError``."""
        host, wanted_port = parse_http_listener(address)
        try:
            port = await self._endpoint.listen(host, wanted_port)
        except OSError as error:
            raise ConfigError(f"oncelog.http.listener={address} cannot be opened: {error.strerror}") from error
        logger.info("Metrics are at http://%s:%d/metrics", f"[{host}]" if ":" in host else host or "localhost", port)
        self._lag.start()
        self._idle.start()

    def stop(self) -> None:
        self._lag.stop()
        self._idle.stop()
        self._endpoint.stop()

    def show(
        self, broker: "Broker", dispatcher: "Dispatcher", server: SocketServer, channel: BrokerChannel | None
    ) -> None:
        """Make the pages about this broker from now on; ``channel``: to other brokers, None if there are none."""
        ends = None if channel is None else PartitionEnds(channel, broker.metadata)
        dispatcher.on_response = self.errors.note

        async def metrics() -> Page:
            counts = dispatcher.request_counts()
            families = chain(
                broker_families(broker),
                await consumer_families(broker, ends),
                topic_metrics(
                    broker.replica_manager.traffic,
                    produced=requests_of(counts, "Produce"),
                    fetched=requests_of(counts, "Fetch"),
                ),
                request_metrics(counts, self.errors),
                traffic_metrics(server.traffic()),
                loop_metrics(self._lag),
                idle_metrics(self._idle),
                disk_metrics(read_io_counts()),
                *(collector.collect() for collector in self._of_the_process),
            )
            return Page(tuple(await write_families(families)), content_type=CONTENT_TYPE)

        async def ready() -> Page:
            reason = why_not_ready(broker)
            status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
            lines = (reason or "ready", *warnings(broker))
            return Page(tuple(f"{line}\n".encode() for line in lines), status)

        self._endpoint.pages = {"/metrics": metrics, "/ready": ready}


def loop_metrics(lag: LoopLag) -> Iterator[Metric]:
    """Yield the delay and the number of tasks of the event loop."""
    below = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], lag.counts, strict=True):
        below += count
        buckets.append((bound, below))
    yield HistogramMetricFamily(
        "oncelog_event_loop_lag_seconds",
        "Delay of a timer that is set every half second; every request is delayed as long.",
        buckets=buckets,
        sum_value=lag.total_seconds,
    )
    yield GaugeMetricFamily("oncelog_tasks", "Tasks of the event loop.", value=len(asyncio.all_tasks()))


def broker_families(broker: "Broker") -> Families:
    """Return what the parts of a broker measure."""
    replicas = broker.replica_manager
    clock = Clock(broker.wall_clock(), broker.config.transaction_max_timeout_ms)
    return chain(
        controller_metrics(broker),
        session_metrics(broker),
        feature_metrics(broker),
        group_metrics(broker.group_coordinator),
        transaction_metrics(broker.transaction_coordinator, broker.wall_clock()),
        verification_metrics(broker.transaction_verifier.metrics),
        replica_metrics(replicas, broker.replica_control, clock),
        led_partition_metrics(replicas),
        log_metrics(replicas),
        cleaner_metrics(broker.log_manager, broker.supervisor),
        quota_metrics(broker.quotas),
        task_metrics(broker.supervisor),
        storage_metrics(broker),
    )


def task_metrics(supervisor: Supervisor) -> Iterator[Metric]:
    """Yield how the broker's background tasks fare. A task has its row from its start on."""
    failures = CounterMetricFamily(
        "oncelog_background_task_failures",
        "Unexpected exceptions of a background task, which is restarted each time.",
        labels=("task",),
    )
    failing = GaugeMetricFamily(
        "oncelog_background_task_failing",
        "1 while the last attempt of the background task has failed.",
        labels=("task",),
    )
    for name, count in supervisor.failures.items():
        failures.add_metric((name,), count)
        failing.add_metric((name,), int(name in supervisor.failing))
    yield from (failures, failing)


def storage_metrics(broker: "Broker") -> Iterator[Metric]:
    """Yield whether the data directory takes writes (Kafka: LogManager)."""
    yield GaugeMetricFamily(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "1 while the disk of the data directory is full.",
        value=int(broker.log_manager.space.is_full),
    )


def warnings(broker: "Broker") -> list[str]:
    """Return what an operator should look at although the broker serves: one sentence each."""
    return [*_of_the_store(broker), *_of_open_files(broker)] + [
        f"background task '{name}' keeps failing ({failing.attempts} times in a row): {failing.error}"
        for name, failing in broker.supervisor.failing.items()
        if failing.attempts >= _KEEPS_FAILING
    ]


def _of_the_store(broker: "Broker") -> Iterator[str]:
    health = broker.session_health
    if health.state is not SessionState.CONNECTED:
        seconds = health.seconds_since_contact
        yield f"the metadata store (ZooKeeper) has not responded for {seconds:.0f} s: {WITHOUT_ZOOKEEPER}"


def _of_open_files(broker: "Broker") -> Iterator[str]:
    unopened = broker.replica_control.unopened
    if unopened:
        logs = "1 log" if len(unopened) == 1 else f"{len(unopened)} logs"
        yield f"{logs} cannot be opened ({unopened.error}): raise the limit of open files (ulimit -n)"
    refusing = len(broker.log_manager.space.files.refusing)
    if refusing:
        logs = "1 log takes" if refusing == 1 else f"{refusing} logs take"
        yield f"{logs} no writes, as no file can be opened: raise the limit of open files (RLIMIT_NOFILE, ulimit -n)"


def why_not_ready(broker: "Broker") -> str | None:
    """Return why clients should not be sent to a broker, or None."""
    if broker.failure.done():
        return f"the broker cannot go on: {broker.failure.result()}"
    if broker.log_manager.space.is_full:
        return f"the disk of {broker.log_manager.log_dir} is full: writes are refused"
    if broker.metadata.image.controller_id not in broker.metadata.image.brokers:
        return "no controller is known"
    if broker.broker_id not in broker.metadata.image.brokers:
        return "the controller does not know this broker yet"
    return None
