"""Our source on Apache Kafka 4: what is read is what is read from a broker of ours."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.certificates import make_certificate
from tests.processes import KafkaProcess, free_port
from tests.spark.other_end import Codec, OtherEnd
from tests.spark.streams import run_available, stream_of

NewName = Callable[[str], str]


@pytest.fixture
def kafka_end(kafka: KafkaProcess) -> Iterator[OtherEnd]:
    with OtherEnd(kafka.address) as end:
        yield end


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafkas_source_reads_a_table(spark: SparkSession, kafka_end: OtherEnd, new_name: NewName, codec: Codec) -> None:
    topic = kafka_end.create(new_name("topic"), 2)
    rows = [(b"k%d" % n, b"v%d" % n) for n in range(500)]
    kafka_end.write(topic, rows, partition=0, compression=codec, headers=[("a", b"1")])
    kafka_end.write(topic, rows, partition=1, compression=codec)
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", kafka_end.address)
    read = reader.option("subscribe", topic).option("includeHeaders", "true").load().orderBy("partition", "offset")
    assert [(bytes(row.key), bytes(row.value), row.partition, row.headers is not None) for row in read.collect()] == [
        (key, value, partition, partition == 0) for partition in range(2) for key, value in rows
    ]


def test_kafkas_source_reads_a_stream_of_transactions(
    spark: SparkSession, kafka_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    topic = kafka_end.create(new_name("topic"))
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": new_name("group")}

    def run() -> list[int]:
        stream = stream_of(spark, kafka_end.address, options)
        return run_available(stream, tmp_path / "checkpoint", tmp_path / "table")

    assert kafka_end.committed(options["groupId"]) == {}  # The first question makes Kafka create its internal topic.
    kafka_end.write(topic, [(None, b"a")] * 10, transactional_id=new_name("id"))
    kafka_end.write(topic, [(None, b"b")] * 10, transactional_id=new_name("id"), commit=False)
    assert run() == [10]
    kafka_end.write(topic, [(None, b"c")] * 5, transactional_id=new_name("id"))
    assert run() == [5]
    values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "table")).collect()]
    assert sorted(values) == [b"a"] * 10 + [b"c"] * 5
    assert kafka_end.committed(options["groupId"]) == {(topic, 0): 22}, "committed when the next batch begins"


def test_kafkas_source_reads_over_tls(spark: SparkSession, tmp_path: Path, new_name: NewName) -> None:
    """With its own certificate, and one that the broker asks for."""
    certificate, own = make_certificate(tmp_path, "broker"), make_certificate(tmp_path, "spark")
    secured = free_port()
    plain, controller = free_port(), free_port()
    settings = [
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificate.both}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={own.certificate}",
        "ssl.client.auth=required",
    ]
    with KafkaProcess(tmp_path / "kafka", settings), OtherEnd(f"127.0.0.1:{plain}") as end:
        end.create("topic")
        end.write("topic", [(None, b"v")] * 100)
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{secured}",
            "subscribe": "topic",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(certificate.certificate),
            "kafka.ssl.keystore.location": str(own.both),
        }
        assert spark.read.format("oncelog").options(**options).load().count() == 100
        del options["kafka.ssl.truststore.location"]
        with pytest.raises(PySparkException, match="its certificate is not accepted: self-signed"):
            spark.read.format("oncelog").options(**options).load().count()
