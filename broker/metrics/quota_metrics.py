"""How often clients were throttled, and for how long (Kafka: throttle-time of Produce, Fetch, Request and others).

Kafka has these for each client. Here clients are counted together: their names are the clients' to choose.
"""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily

from oncelog.broker.quotas.client_quotas import ClientQuotas


def quota_metrics(quotas: ClientQuotas) -> Iterator[Metric]:
    throttled = CounterMetricFamily(
        "oncelog_client_throttles",
        "Responses whose client was throttled, and connections that were served later or closed, by quota.",
        labels=("quota",),
    )
    seconds = CounterMetricFamily(
        "oncelog_client_throttle_seconds", "Seconds for which clients were throttled.", labels=("quota",)
    )
    for name, throttles in quotas.throttles.items():
        throttled.add_metric((name,), throttles.count)
        seconds.add_metric((name,), throttles.seconds)
    yield from (throttled, seconds)
