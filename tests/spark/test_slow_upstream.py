"""A task whose rows come slowly: what was sent before is acknowledged meanwhile. Real broker, no Spark."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from oncelog.spark_connector.process_client import ClientSettings, close_process_clients
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import WriteOptions
from tests.processes import OncelogProcess
from tests.spark.other_end import OtherEnd

ROWS = 60_000
"""More than a task collects before it sends."""
_LOOKS = 300
_LOOK_SECONDS = 0.1


@pytest.mark.parametrize("is_exact", [True, False])
def test_rows_are_acknowledged_while_the_upstream_computes_more(tmp_path: Path, is_exact: bool) -> None:
    """The records that went first would expire after ``kafka.delivery.timeout.ms`` otherwise."""
    with OncelogProcess(tmp_path) as broker, OtherEnd(broker.address) as end:
        topic = end.create("topic")

        def upstream() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"value": pa.array([b"%d" % number for number in range(ROWS)])})
            with ThreadPoolExecutor(1) as elsewhere:  # As the JVM is: here the task's loop may be at work.
                elsewhere.submit(wait_for_rows, end, topic).result()
            yield pa.record_batch({"value": pa.array([b"last"])})

        client = ClientSettings(bootstrap=broker.address)
        options = WriteOptions(client=client, topic=topic, sink="sink", batch_bytes=1024, request_bytes=1024)
        session = SinkSession(options)
        if is_exact:
            permit = session.begin("sink")
            session.commit([session.write(permit, "query", 0, upstream())], 0)
        else:
            session.write_plainly(upstream())
        assert len(end.read(topic)[0]) == ROWS + 1
        close_process_clients()


def wait_for_rows(end: OtherEnd, topic: str) -> None:
    """Until all rows of the first piece are in the log."""
    pause = threading.Event()
    for _ in range(_LOOKS):
        if end.ends(topic, read_committed=False)[0] >= ROWS:
            return
        pause.wait(_LOOK_SECONDS)
    raise AssertionError("what was sent does not arrive while the upstream computes")
