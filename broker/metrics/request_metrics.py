"""Requests by API, their errors, and what goes over the listeners (Kafka: RequestMetrics, SocketServer)."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.metrics.response_errors import ResponseErrors
from oncelog.broker.network.socket_server import Traffic
from oncelog.protocol.errors import ErrorCode


def request_metrics(dispatcher: Dispatcher, errors: ResponseErrors) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "kafka_network_requestmetrics_requests", "Requests that were begun.", labels=("request", "version")
    )
    told = Counter(errors.counts)
    produced = fetched = 0
    for (name, version), (count, failures) in sorted(dispatcher.request_counts().items()):
        requests.add_metric((name, str(version)), count)
        told[name, ErrorCode.UNKNOWN_SERVER_ERROR] += failures
        produced += count if name == "Produce" else 0
        fetched += count if name == "Fetch" else 0
    yield requests
    counted = CounterMetricFamily(
        "kafka_network_requestmetrics_errors", "Error codes in answers.", labels=("request", "error")
    )
    for (name, code), count in sorted(told.items()):
        if count:
            counted.add_metric((name, _error_name(code)), count)
    yield counted
    family = "kafka_server_brokertopicmetrics_total"
    yield CounterMetricFamily(f"{family}producerequests", "Produce requests.", value=produced)
    yield CounterMetricFamily(f"{family}fetchrequests", "Fetch requests, of consumers and replicas.", value=fetched)
    yield CounterMetricFamily(
        "oncelog_zombie_fences",
        "Error codes that told a producer that it was replaced (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH).",
        value=errors.zombie_fences,
    )


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)


def traffic_metrics(traffic: Mapping[str, Traffic]) -> Iterator[Metric]:
    family = "kafka_server_socket_server_metrics"
    connections = GaugeMetricFamily(f"{family}_connection_count", "Open connections.", labels=("listener",))
    accepted = CounterMetricFamily(f"{family}_connection_creation", "Connections ever made.", labels=("listener",))
    bytes_in = CounterMetricFamily(f"{family}_incoming_byte", "Bytes received.", labels=("listener",))
    bytes_out = CounterMetricFamily(f"{family}_outgoing_byte", "Bytes sent.", labels=("listener",))
    for listener, counts in traffic.items():
        connections.add_metric((listener,), counts.connections)
        accepted.add_metric((listener,), counts.accepted)
        bytes_in.add_metric((listener,), counts.bytes_in)
        bytes_out.add_metric((listener,), counts.bytes_out)
    yield from (connections, accepted, bytes_in, bytes_out)
