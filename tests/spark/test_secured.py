"""Spark on a broker with SASL_SSL, SCRAM and access control lists, with the rights that its jobs need and no other."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException, StreamingQueryException

from tests.secured_process import MECHANISM, MODULE, PASSWORD, SecuredProcess
from tests.spark.streams import on_a_busy_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SECONDS: Final = 30.0
"""Far above what a job needs that is refused, and below the time-outs of clients."""
PARTITIONS: Final = 2
SECONDS: Final = 60


class SecuredJobs:
    """Jobs of one user of Spark, which copy a topic to another; ``source`` and ``target`` are new."""

    def __init__(self, spark: "SparkSession", process: SecuredProcess, user: str, checkpoint: Path) -> None:
        self._spark = spark
        self._process = process
        self._user = user
        self._checkpoint = checkpoint
        self.source, self.target, self.state_topic = f"in-{user}", f"out-{user}", f"state-{user}"
        for topic in (self.source, self.target):
            process.admin(f"topic create {topic} --partitions {PARTITIONS}")
        process.add_user(user)

    def allow(self, right: str) -> None:
        self._process.admin(f"acl add User:{self._user} {right}")

    def disallow(self, right: str) -> None:
        self._process.admin(f"acl remove User:{self._user} {right}")

    @property
    def rights_to_read(self) -> list[str]:
        return [f"read --topic {self.source}"]

    @property
    def rights_to_write(self) -> list[str]:
        """For the sink with exactly-once."""
        return [
            f"write --topic {self.target}",
            f"write --transactional-id {self._user} --prefixed",
            f"read --topic {self.state_topic}",
            f"write --topic {self.state_topic}",
        ]

    @property
    def rights_to_make_the_state_topic(self) -> list[str]:
        """For the first job, and to see that the topic is compacted."""
        return [f"{operation} --topic {self.state_topic}" for operation in ("create", "describe-configs")]

    def make_state_topic(self) -> None:
        self._process.admin(f"topic create {self.state_topic} --partitions 4 --config cleanup.policy=compact")

    def options(self) -> dict[str, str]:
        """The options of Spark for the login, by Kafka's names."""
        return {
            "kafka.bootstrap.servers": self._process.address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self._process.authority,
            "kafka.sasl.mechanism": MECHANISM,
            "kafka.sasl.jaas.config": f'{MODULE}.scram.ScramLoginModule required username="{self._user}" '
            f'password="{PASSWORD}";',
        }

    def read(self) -> list[bytes]:
        """Read the source in a batch."""
        rows = self._spark.read.format("oncelog").options(**self.options()).option("subscribe", self.source).load()
        return sorted(bytes(row.value) for row in rows.select("value").collect())

    def write(self, values: list[str], **options: str) -> None:
        """Write to the target in a batch."""
        rows = self._spark.createDataFrame([(value,) for value in values], "value string")
        writer = rows.write.format("oncelog").mode("append").options(**self.options())
        prefix = f"{self._user}-batch"
        writer.options(topic=self.target, transactionalIdPrefix=prefix, stateTopic=self.state_topic, **options).save()

    def copy(self) -> None:
        """Copy what is new from the source to the target, exactly once."""
        rows = (
            self._spark.readStream.format("oncelog")
            .options(**self.options())
            .options(subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger="40")
            .load()
        )
        query = (
            rows.select("key", "value")
            .writeStream.format("oncelog")
            .options(**self.options())
            .options(topic=self.target, transactionalIdPrefix=f"{self._user}-stream", stateTopic=self.state_topic)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS * 4)

    # The other end, as the administrator

    def _admin(self) -> dict[str, Any]:
        return self._process.librdkafka("admin") | {"sasl.mechanisms": "PLAIN", "sasl.password": "admin"}

    def put(self, values: list[str]) -> None:
        """Write to the source, and leave an aborted record behind."""
        producer = Producer({**self._admin(), "transactional.id": f"put-{self._user}"})
        producer.init_transactions(SECONDS)
        for commit in (True, False):
            producer.begin_transaction()
            for value in values if commit else ["aborted"]:
                producer.produce(self.source, value)
            assert producer.flush(SECONDS) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)

    def found(self) -> list[bytes]:
        """What readers of committed records find in the target."""
        consumer = Consumer({**self._admin(), "group.id": "other-end", "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.target, partition, 0) for partition in range(PARTITIONS)])
        values, ends = [], 0
        while ends < PARTITIONS:
            message = consumer.poll(SECONDS)
            assert message is not None
            if message.error() is None:
                values.append(message.value() or b"")
            else:
                ends += 1
        consumer.close()
        return sorted(values)

    def denials(self) -> set[str]:
        """Return what this user was denied, by the broker's log."""
        log = (self._process.directory / "stderr.log").read_text()
        return set(re.findall(rf"Denied User:{self._user} at [^ ]+: (\S+ on \S+ \S+)", log))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("secured")) as process:
        yield process


@pytest.mark.smoke
def test_jobs_read_and_write_exactly_once_with_the_rights_that_they_need(
    spark: "SparkSession", secured: SecuredProcess, tmp_path: Path
) -> None:
    jobs = SecuredJobs(spark, secured, "jobs", tmp_path)
    jobs.make_state_topic()
    for right in (*jobs.rights_to_read, *jobs.rights_to_write):
        jobs.allow(right)
    first, second = [f"first {number}" for number in range(100)], ["second"]
    jobs.put(first)
    assert jobs.read() == sorted(value.encode() for value in first)
    on_a_busy_machine(jobs.copy)
    jobs.put(second)
    on_a_busy_machine(jobs.copy)
    assert jobs.found() == sorted(value.encode() for value in (*first, *second))
    for _ in range(2):
        jobs.write(["once"], txnAppId="app", txnVersion="1")
    jobs.write(["as a whole"])
    assert jobs.found() == sorted(value.encode() for value in (*first, *second, "once", "as a whole"))
    assert jobs.denials() == {"DESCRIBE_CONFIGS on CLUSTER kafka-cluster", "DESCRIBE_CONFIGS on TOPIC state-jobs"}


def test_missing_right_ends_the_job_within_seconds_and_is_named(
    spark: "SparkSession", secured: SecuredProcess, tmp_path: Path
) -> None:
    jobs = SecuredJobs(spark, secured, "needs", tmp_path)
    needed = {
        **dict.fromkeys(jobs.rights_to_read, jobs.source),
        **dict(zip(jobs.rights_to_write, (jobs.target, "needs-stream", jobs.state_topic, "state topic"), strict=True)),
    }
    for right in (*needed, *jobs.rights_to_make_the_state_topic):
        jobs.allow(right)
    jobs.put(["one"])
    on_a_busy_machine(jobs.copy)
    jobs.put(["two"])
    for right, name in needed.items():
        jobs.disallow(right)
        began = time.perf_counter()
        with pytest.raises(StreamingQueryException) as raised:
            jobs.copy()
        said = str(raised.value)
        assert "AUTHORIZATION_FAILED" in said, right
        assert any(name in line for line in said.splitlines() if "AUTHORIZATION_FAILED" in line), right
        assert time.perf_counter() - began < MOST_SECONDS, right
        assert PASSWORD not in said
        jobs.allow(right)
    on_a_busy_machine(jobs.copy)
    assert jobs.found() == [b"one", b"two"]


def test_batch_without_a_name_needs_no_right_beyond_its_prefix(
    spark: "SparkSession", secured: SecuredProcess, tmp_path: Path
) -> None:
    jobs = SecuredJobs(spark, secured, "nameless", tmp_path)
    jobs.allow(f"write --topic {jobs.target}")
    with pytest.raises(PySparkException) as raised:
        jobs.write(["refused"])
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(raised.value)
    jobs.allow("write --transactional-id nameless --prefixed")
    jobs.write(["allowed"])
    assert jobs.found() == [b"allowed"]
