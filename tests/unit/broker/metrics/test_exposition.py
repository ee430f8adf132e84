"""The text of a page, with the library's own writer as oracle."""

from collections.abc import Iterator

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from oncelog.broker.metrics.exposition import PAUSE, write_families

ODD = 'a"b\\c\nd'


class One(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def labelled() -> Metric:
    family = CounterMetricFamily("requests", "Requests.", labels=("api", "error"))
    family.add_metric((ODD, "NONE"), 3)
    family.add_metric(("Fetch", ""), 1.5)
    return family


FAMILIES = [
    GaugeMetricFamily("plain", "A back\\slash and a\nnew line.", value=7),
    GaugeMetricFamily("empty", "No sample.", labels=()),
    GaugeMetricFamily("share", "Small.", value=1e-9),
    labelled(),
    HistogramMetricFamily("seconds", "Some.", buckets=[("0.5", 1), ("+Inf", 2)], sum_value=3.25),
    SummaryMetricFamily("size", "Some.", count_value=2, sum_value=5),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_family_reads_as_the_library_writes_it(family: Metric) -> None:
    (written,) = await write_families([family])
    ours = list(text_string_to_metric_families(written.decode()))
    theirs = list(text_string_to_metric_families(generate_latest(One(family)).decode()))
    assert ours == theirs
    assert [each.documentation for each in ours] == [each.documentation for each in theirs]


async def test_pauses_are_not_written() -> None:
    (written,) = await write_families([PAUSE, FAMILIES[0], PAUSE])
    assert written.count(b"# TYPE") == 1
