"""The walk of a Spark row in ``docs/explanation/walks.md`` is true; the source is called as Spark calls it."""

import pickle
from collections.abc import Callable

from oncelog.spark_connector.source import OncelogDataSource
from tests.house.walks import SPARK_ROW, recorded, unreached
from tests.spark.other_end import OtherEnd


def test_reading_a_row_calls_the_stops_of_its_walk_in_order(
    other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("topic"), 1)
    other_end.write(topic, [(None, b"v")])
    with recorded() as calls:
        source = OncelogDataSource({"kafka.bootstrap.servers": other_end.address, "subscribe": topic})
        reader = source.reader(source.schema())
        (task,) = reader.partitions()
        in_task = pickle.loads(pickle.dumps(reader))
        values = [value for batch in in_task.read(task) for value in batch["value"].to_pylist()]
    assert values == [b"v"]
    assert unreached(SPARK_ROW, calls) == []
