"""Reading a checkpoint's directory."""

import json
from pathlib import Path

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.checkpoint import BatchPlan, local_path, plan_of, read_plan
from oncelog.spark_connector.stream_offset import StreamOffset

ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n{"end":{"orders":{"0":12}}}\n-'


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("a/b", "a/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("FILE:///a/b/", "/a/b"),
        ("/a/b:c", "/a/b:c"),
    ],
)
def test_local_checkpoint_is_found_however_it_is_spelt(location: str, path: str) -> None:
    assert local_path(location) == Path(path)


@pytest.mark.parametrize("location", ["hdfs://n/a", "s3a://bucket/a", "dbfs:/a"])
def test_checkpoint_on_another_file_system_is_not_local(location: str) -> None:
    assert local_path(location) is None
    assert read_plan(location, 0) == BatchPlan()


def test_same_batch_planned_later_has_the_same_offsets(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(ENTRY % 1)
    (tmp_path / "offsets" / "8").write_text(ENTRY % 2)
    first, second = read_plan(str(tmp_path), 7), read_plan(f"file://{tmp_path}/", 8)
    assert first.offsets == second.offsets == '{"end":{"orders":{"0":12}}} -'
    assert (first.time, second.time) == ("1", "2")
    assert read_plan(str(tmp_path)) == second
    assert read_plan(str(tmp_path), 9) == read_plan("") == BatchPlan()


def test_many_offsets_become_a_digest() -> None:
    many = ENTRY % 1 + "\n" + "x" * 5000
    assert len(plan_of(many).offsets) < 100
    assert plan_of(many).offsets != plan_of(many + "x").offsets


@pytest.mark.parametrize(
    ("sources", "names_rows"),
    [
        (['{"orders":{"0":12,"1":0}}'], True),
        (["-", '{"orders":{"0":12}}', '{"v":1,"start":{},"end":{"t":{"0":1}},"ids":{}}'], True),
        (['{"logOffset":1}'], False),
        (['{"orders":{"0":12}}', '{"logOffset":1}'], False),
        (['{"orders":{}}'], False),
        (['{"v":1,"init":true}'], False),
        (["17"], False),
        (["-"], False),
        ([], False),
    ],
)
def test_offsets_of_topics_alone_name_rows(sources: list[str], names_rows: bool) -> None:
    assert plan_of("\n".join(["v1", "{}", *sources])).names_rows is names_rows


def test_topics_of_plan_are_those_of_all_sources_and_of_former_release_apart() -> None:
    of_kafka = '{"orders":{"0":12}}'
    of_former = '{"v":1,"start":{"t":{"0":0}},"end":{"t":{"0":1},"u":{"0":2}},"ids":{}}'
    of_this = json.dumps(StreamOffset({TopicPartition("w", 0): 1}, {TopicPartition("w", 0): 2}).to_json())
    plan = plan_of("\n".join(["v1", "{}", "-", of_kafka, of_former, of_this, '{"logOffset":1}']))
    assert plan.topics == {"orders", "w"}
    assert plan.former_topics == {"t", "u"}


def test_offsets_of_former_release_and_of_this_one_are_the_same_text() -> None:
    """Or a batch that is planned anew after an upgrade would be taken for another one than was decided."""
    offset = StreamOffset({TopicPartition("t", 0): 1}, {TopicPartition("t", 0): 2}, {"t": bytes(range(16))}).to_json()
    now = json.dumps(offset)
    del offset["revision"]
    former = json.dumps(offset)
    assert now != former
    assert plan_of(f"v1\n{{}}\n{now}").offsets == plan_of(f"v1\n{{}}\n{former}").offsets == former
