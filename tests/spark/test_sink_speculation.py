"""Speculative attempts on a standalone cluster of two workers: of two attempts at a task, one is seen."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tests.processes import REPOSITORY, BrokerProcess, OncelogProcess, free_port
from tests.spark.other_end import OtherEnd
from tests.spark.speculating_query import LAST_BATCH, ROWS_IN_BATCH

_SECONDS = 900.0


class SparkDaemon(BrokerProcess):
    """Spark's master, or a worker; what it logs goes to its standard output here."""

    ready_line = re.compile(r"I have been elected leader|Successfully registered with master")

    def __init__(self, directory: Path, host: str, *words: str) -> None:
        super().__init__(directory)
        self.host = host
        self.words = words

    def command(self) -> list[str]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        return ["bash", "-c", 'exec "$0" "$@" 2>&1', str(spark_class), *self.words]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **_environment(), "SPARK_LOCAL_IP": self.host}


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Two workers on two addresses: Spark does not speculate on the host that it doubts."""
    address = f"127.0.0.1:{free_port()}"
    web = ("--webui-port", "0")
    with ExitStack() as stack:
        words = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", address.split(":")[1], *web)
        stack.enter_context(SparkDaemon(tmp_path / "master", "127.0.0.1", *words))
        for host in ("127.0.0.1", "127.0.0.2"):
            directory = tmp_path / f"worker-{host}"
            words = ("org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "2", "--memory", "700m", *web)
            words = (*words, "--work-dir", str(directory), f"spark://{address}")
            stack.enter_context(SparkDaemon(directory, host, *words))
        yield f"spark://{address}"


@pytest.mark.kills
def test_speculative_attempts_write_rows_once(master: str, tmp_path: Path) -> None:
    """The first of one task never ends: that the query goes on shows that there was a second."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    checkpoint = tmp_path / "checkpoint"
    with OncelogProcess(tmp_path / "broker") as broker, OtherEnd(broker.address) as end:
        topic = end.create("out", 3)
        words = [master, broker.address, topic, str(checkpoint), str(fifo)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.speculating_query", *words],
            env={**os.environ, **_environment()},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        batches = [int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal()]
        assert max(batches) >= LAST_BATCH
        end.wait_until_ended(topic)
        values = [int(each.value or b"") for partition in end.read(topic).values() for each in partition]
        assert sorted(values)[: len(batches) * ROWS_IN_BATCH] == list(range(len(batches) * ROWS_IN_BATCH))
        assert len(set(values)) == len(values)
        listed = end.client.run(end.client.admin.list_transactions(states=["Ongoing"]))
        assert not [each.transactional_id for each in listed]
