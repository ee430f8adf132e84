"""Traffic of this broker's topics (Kafka: BrokerTopicMetrics), under both names that Strimzi's dashboards have for it.

The rules of the JMX exporter make ``…_bytesin_total`` of Kafka's BytesInPerSec, the metrics reporter of Strimzi makes
``…_bytesinpersec_total``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily

from oncelog.broker.metrics.family_parts import in_parts
from oncelog.broker.replication.topic_traffic import TopicTraffic

_PREFIX: Final = "kafka_server_brokertopicmetrics"
_SPELLINGS: Final = ("", "persec")


_Value: TypeAlias = Callable[[TopicTraffic], int]
_MESSAGES_IN: Final = "Records appended by producers and coordinators, and markers."


def topic_metrics(traffic: Mapping[str, TopicTraffic], *, produced: int, fetched: int) -> Iterator[Metric]:
    """Yield the counts of each topic, and without a topic how many Produce and Fetch requests there were."""
    topics = list(traffic.items())
    families: tuple[tuple[str, str, _Value, int | None], ...] = (
        ("messagesin", _MESSAGES_IN, lambda topic: topic.messages_in, None),
        ("bytesin", "Bytes of appended batches, as stored.", lambda topic: topic.bytes_in, None),
        ("bytesout", "Bytes of batches in responses to fetches.", lambda topic: topic.bytes_out, None),
        (
            "totalproducerequests",
            "Produce requests; with a topic: their batches for partitions that this broker led.",
            lambda topic: topic.produced,
            produced,
        ),
        (
            "totalfetchrequests",
            "Fetch requests of consumers and replicas; with a topic: its partitions in the responses.",
            lambda topic: topic.fetched,
            fetched,
        ),
        (
            "failedproducerequests",
            "Those of these batches that the leader refused, for whatever reason.",
            lambda topic: topic.refused_produces,
            None,
        ),
        (
            "failedfetchrequests",
            "Those of these partitions that had an error, for whatever reason.",
            lambda topic: topic.refused_fetches,
            None,
        ),
    )
    for name, doc, value, total in families:
        rows: list[tuple[str | None, int]] = [] if total is None else [(None, total)]
        rows += [(topic, value(counts)) for topic, counts in topics]
        for spelling in _SPELLINGS:
            yield from _family(f"{_PREFIX}_{name}{spelling}", doc, rows)


def _family(name: str, doc: str, rows: Sequence[tuple[str | None, int]]) -> Iterator[Metric]:
    def add(family: Metric, row: tuple[str | None, int]) -> None:
        topic, count = row
        family.add_sample(f"{name}_total", {} if topic is None else {"topic": topic}, count)

    return in_parts(partial(CounterMetricFamily, name, doc, labels=("topic",)), add, rows)
