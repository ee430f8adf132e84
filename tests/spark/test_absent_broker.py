"""The sink's steps while the only broker is away: each waits until it is back. Real broker, no Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pyarrow as pa

from oncelog.spark_connector.process_client import ClientSettings, close_process_clients
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import WriteOptions
from tests.processes import OncelogProcess
from tests.spark.other_end import OtherEnd


@contextmanager
def coming_back(broker: OncelogProcess) -> Iterator[None]:
    """Kill the broker; it is started while the block runs, which takes longer than a refused connection."""
    broker.kill()
    start = Thread(target=broker.start, name="start broker")
    start.start()
    try:
        yield
    finally:
        start.join()


def test_steps_of_the_sink_wait_for_an_absent_broker(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker, OtherEnd(broker.address) as end:
        topic = end.create("topic")

        def session(step: str) -> SinkSession:
            """With connections of its own, as in a process of its own."""
            client = ClientSettings(bootstrap=broker.address, client_id=step)
            return SinkSession(WriteOptions(client=client, topic=topic, sink="sink"))

        rows = pa.record_batch({"value": pa.array([b"a", b"b"])})
        for batch in range(2):  # What is known of the cluster the second time must not be in the way either.
            with coming_back(broker):
                permit = session("prelude").begin("sink")
            with coming_back(broker):
                outcome = session("task").write(permit, "query", batch, iter([rows]))
            with coming_back(broker):
                session("commit").commit([outcome], batch)
        assert [record.value for record in end.read(topic)[0]] == [b"a", b"b"] * 2
        close_process_clients()
