"""A checkpoint that is one batch behind, where no offsets tell its batch from the decided one: refused on real Spark.

The plan of a stream of files only counts; a checkpoint of the session's configuration is not known to the sink; nor is
what ``foreachBatch`` saves. The batch that Spark only repeats is skipped in all of them.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.other_end import OtherEnd
from tests.spark.streams import on_a_busy_machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

_CONFIGURED = "spark.sql.streaming.checkpointLocation"


class Copying:
    """Files of numbers, copied to a topic by a query whose plan the sink cannot learn."""

    def __init__(self, spark: "SparkSession", other_end: OtherEnd, target: str, directory: Path, kind: str) -> None:
        self._spark = spark
        self._other_end = other_end
        self._target = target
        self._kind = kind
        self._files = directory / "files"
        self._files.mkdir()
        self.checkpoint = directory / "checkpoints" / "copying"
        self.fed = 0

    def feed(self) -> None:
        """Ten numbers more."""
        numbers = range(self.fed, self.fed + 10)
        self.fed += 10
        hidden = self._files / f".{self.fed}"
        hidden.write_text("".join(f"{number:03}\n" for number in numbers))
        hidden.rename(self._files / f"{self.fed}.txt")

    def _save(self, batch: "DataFrame", number: int) -> None:
        writer: DataFrameWriter = batch.write.format("oncelog").mode("append").option("topic", self._target)
        writer = writer.option("kafka.bootstrap.servers", self._other_end.address)
        writer.option("txnAppId", self._target).option("txnVersion", str(number)).save()

    def _writer(self) -> "DataStreamWriter":
        writer = self._spark.readStream.format("text").load(str(self._files)).writeStream.queryName("copying")
        if self._kind == "saved":
            return writer.foreachBatch(self._save).option("checkpointLocation", str(self.checkpoint))
        writer = writer.format("oncelog").option("kafka.bootstrap.servers", self._other_end.address)
        writer = writer.option("topic", self._target)
        if self._kind == "configured":
            return writer.option("transactionalIdPrefix", self._target)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def run(self) -> None:
        """All that there is, as one batch."""
        on_a_busy_machine(lambda: self._writer().trigger(availableNow=True).start().awaitTermination(240))

    def restore(self, backup: Path) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(backup, self.checkpoint)

    def found(self) -> list[int]:
        self._other_end.wait_until_ended(self._target)
        records = self._other_end.read(self._target)
        return sorted(int(each.value) for partition in records.values() for each in partition)


@pytest.fixture
def configured(spark: "SparkSession", tmp_path: Path) -> Iterator[None]:
    spark.conf.set(_CONFIGURED, str(tmp_path / "checkpoints"))
    yield
    spark.conf.unset(_CONFIGURED)


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("kind", ["files", "configured", "saved"])
def test_checkpoint_that_is_one_batch_behind_is_refused_and_a_repetition_is_skipped(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    copying = Copying(spark, other_end, other_end.create(new_name("out"), 2), tmp_path, kind)
    backups = [tmp_path / "before", tmp_path / "newest"]
    for backup in backups:
        copying.feed()
        copying.run()
        shutil.copytree(copying.checkpoint, backup)
    copying.feed()
    copying.restore(backups[0])
    with pytest.raises(StreamingQueryException, match=r"(?s)CheckpointRewound.*with 10 rows .* and not with 20 rows"):
        copying.run()
    assert copying.found() == list(range(20))
    (backups[1] / "commits" / "1").unlink()
    (backups[1] / "commits" / ".1.crc").unlink(missing_ok=True)
    copying.restore(backups[1])
    copying.run()
    assert copying.found() == list(range(30))
