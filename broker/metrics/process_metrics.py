"""The broker's process: how idle its loop is, and its disk I/O.

(Kafka: SocketServer, KafkaRequestHandlerPool, KafkaServer.)

Names are in both spellings of Strimzi's dashboards. The metrics reporter shows the idle time of Kafka's request
handlers as a counter of nanoseconds, as Kafka measures it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.metrics.loop_idle import LoopIdle

_IO_OF_THIS_PROCESS: Final = "/proc/self/io"
_IDLE: Final = "Share of the last minute, 0 to 1, in which the thread of the event loop did not run"


def idle_metrics(idle: LoopIdle) -> Iterator[Metric]:
    """Yield the idle time of the loop; one thread is Kafka's network threads and request handlers."""
    share, nanoseconds = idle.share, idle.idle_nanoseconds
    for name, doc in (
        ("kafka_network_socketserver_networkprocessoravgidle_percent", f"{_IDLE}."),
        ("kafka_network_socketserver_networkprocessoravgidlepercent", f"{_IDLE}; of Strimzi's metrics reporter."),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", f"{_IDLE}: the same thread."),
    ):
        family = GaugeMetricFamily(name, doc, labels=())
        if share is not None:
            family.add_metric((), share)
        yield family
    counter = CounterMetricFamily(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "Nanoseconds since the start in which that thread did not run; of Strimzi's metrics reporter.",
        labels=(),
    )
    if nanoseconds is not None:
        counter.add_metric((), nanoseconds)
    yield counter


def disk_metrics(counts: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what the process has read from disks and written to them, by the counts of ``read_io_counts``."""
    for direction, doc in (
        ("read", "Bytes that the process has read from disks; absent where the kernel does not say."),
        ("write", "Bytes that the process has caused to be written to disks."),
    ):
        family = GaugeMetricFamily(f"kafka_server_kafkaserver_linux_disk_{direction}_bytes", doc, labels=())
        if (count := counts.get(f"{direction}_bytes")) is not None:
            family.add_metric((), count)
        yield family


def read_io_counts(path: str = _IO_OF_THIS_PROCESS) -> dict[str, int]:
    """Return what the kernel counts of a process's I/O, by name; empty where it has no such file."""
    try:
        with open(path, encoding="ascii") as file:
            fields = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {name: int(value) for name, _, value in fields}
