"""An unreachable address: each way to use it ends in an error that says where, why and what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from oncelog.spark_connector.sink.commit.sink_errors import BatchNotBegun
from oncelog.spark_connector.sink.stream_writer import OncelogStreamWriter
from oncelog.spark_connector.sink.write_options import stream_write_options
from oncelog.spark_connector.sink.writer import OncelogWriter
from tests.processes import free_port
from tests.spark.streams import stream_of

_MILLISECONDS = "4000"
_SECONDS = 120


@pytest.fixture
def nowhere() -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "kafka.default.api.timeout.ms": _MILLISECONDS,
        "kafka.max.block.ms": _MILLISECONDS,
    }


def assert_says_it_all(message: str, nowhere: dict[str, str]) -> None:
    address = nowhere["kafka.bootstrap.servers"]
    assert f"NoBrokerReachable: no broker was reached within 4 s: {address}: " in message
    assert "Connection refused" in message
    assert f"`oncelog doctor --bootstrap {address}`" in message
    assert "Could not serialize" not in message


def test_batches_to_an_unreachable_address_fail_with_it_in_the_message(
    spark: SparkSession, nowhere: dict[str, str]
) -> None:
    rows = spark.sql("select 'v' as value")

    def write(**more: str) -> Callable[[], None]:
        return rows.write.format("oncelog").options(**nowhere, topic="t", **more).mode("append").save

    def read() -> DataFrame:
        return spark.read.format("oncelog").options(**nowhere, subscribe="t").load()

    once = {"delivery.guarantee": "at-least-once"}
    for action in (write(), write(**once), lambda: read().collect()):
        with pytest.raises(PySparkException) as raised:
            action()
        assert_says_it_all(str(raised.value), nowhere)
        assert "Traceback" not in str(raised.value)


def test_stream_from_an_unreachable_address_fails_with_it_in_the_message(
    spark: SparkSession, nowhere: dict[str, str], tmp_path: Path
) -> None:
    address = nowhere.pop("kafka.bootstrap.servers")
    stream = stream_of(spark, address, {**nowhere, "subscribe": "t"})
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as raised:
        writer.start().awaitTermination(_SECONDS)
    assert_says_it_all(str(raised.value), {"kafka.bootstrap.servers": address})


@pytest.mark.parametrize("kind", [OncelogWriter, OncelogStreamWriter])
def test_error_while_spark_pickles_a_writer_names_its_cause(
    kind: type[OncelogWriter | OncelogStreamWriter], nowhere: dict[str, str]
) -> None:
    given = {"kafka.bootstrap.servers": nowhere["kafka.bootstrap.servers"], "kafka.max.block.ms": "50"}
    given |= {"topic": "t", "transactionalidprefix": "p"}
    writer = kind(stream_write_options(given, [("value", "binary")]))
    with pytest.raises(BatchNotBegun, match=r"NoBrokerReachable: no broker was reached within 0\.05 s"):
        CloudPickleSerializer().dumps(writer)


def test_abort_that_fails_does_not_hide_why_the_batch_failed(
    nowhere: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark says ``Writing job failed`` instead, where ``abort`` raises."""
    given = {"kafka.bootstrap.servers": nowhere["kafka.bootstrap.servers"], "kafka.max.block.ms": "50"}
    given |= {"topic": "t", "transactionalidprefix": "p"}
    OncelogStreamWriter(stream_write_options(given, [("value", "binary")])).abort([None], 7)
    assert "batch 7 of sink p is not aborted now: NoBrokerReachable" in caplog.text
