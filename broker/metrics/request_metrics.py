"""Requests by API, their errors, and what goes over the listeners (Kafka: RequestMetrics, SocketServer)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.metrics.response_errors import ResponseErrors
from oncelog.broker.network.socket_server import Traffic
from oncelog.protocol.errors import ErrorCode

RequestCounts: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""How many requests were begun and how many failed unexpectedly, by API name and version."""


def requests_of(counts: RequestCounts, api: str) -> int:
    """Return how many requests of an API were begun, of all versions."""
    return sum(begun for (name, _), (begun, _) in counts.items() if name == api)


def request_metrics(counts: RequestCounts, errors: ResponseErrors) -> Iterator[Metric]:
    """Yield the requests by API and version, and the errors in their responses."""
    requests = CounterMetricFamily(
        "kafka_network_requestmetrics_requests", "Requests that were begun.", labels=("request", "version")
    )
    failed = Counter(errors.counts)
    for (name, version), (count, failures) in sorted(counts.items()):
        requests.add_metric((name, str(version)), count)
        failed[name, ErrorCode.UNKNOWN_SERVER_ERROR] += failures
    yield requests
    counted = CounterMetricFamily(
        "kafka_network_requestmetrics_errors",
        "Error codes in responses, those of single topics and partitions included, without NONE.",
        labels=("request", "error"),
    )
    for (name, code), count in sorted(failed.items()):
        if count:
            counted.add_metric((name, _error_name(code)), count)
    yield counted
    yield CounterMetricFamily(
        "oncelog_zombie_fences",
        "PRODUCER_FENCED and INVALID_PRODUCER_EPOCH in responses to producers: another producer has replaced them.",
        value=errors.zombie_fences,
    )


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)


def traffic_metrics(traffic: Mapping[str, Traffic]) -> Iterator[Metric]:
    family = "kafka_server_socket_server_metrics"
    connections = GaugeMetricFamily(f"{family}_connection_count", "Open connections.", labels=("listener",))
    accepted = CounterMetricFamily(
        f"{family}_connection_creation", "Connections accepted since the start.", labels=("listener",)
    )
    bytes_in = CounterMetricFamily(f"{family}_incoming_byte", "Bytes received.", labels=("listener",))
    bytes_out = CounterMetricFamily(f"{family}_outgoing_byte", "Bytes sent.", labels=("listener",))
    successful = CounterMetricFamily(
        f"{family}_successful_authentication", "Authentications that succeeded.", labels=("listener",)
    )
    failed = CounterMetricFamily(
        f"{family}_failed_authentication", "Authentications that failed.", labels=("listener",)
    )
    for listener, counts in traffic.items():
        connections.add_metric((listener,), counts.connections)
        accepted.add_metric((listener,), counts.accepted)
        bytes_in.add_metric((listener,), counts.bytes_in)
        bytes_out.add_metric((listener,), counts.bytes_out)
        successful.add_metric((listener,), counts.successful_authentications)
        failed.add_metric((listener,), counts.failed_authentications)
    yield from (connections, accepted, bytes_in, bytes_out, successful, failed)
