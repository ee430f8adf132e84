"""Writing options: what they become, and that all complaints come at once."""

import hashlib
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from oncelog.protocol.records.compression import Compression
from oncelog.spark_connector.options import OptionsInvalid
from oncelog.spark_connector.sink.sink_name import with_sink_name
from oncelog.spark_connector.sink.write_options import (
    Guarantee,
    batch_write_options,
    stream_write_options,
)

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = [("value", "binary")]
STREAM = {**BOOTSTRAP, "topic": "t", "checkpointlocation": "/c"}


def complaints(call: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(OptionsInvalid) as raised:
        call(*args, **kwargs)
    return list(raised.value.problems)


def test_stream_without_a_prefix_is_named_after_the_query_in_its_checkpoint(tmp_path: Path) -> None:
    """However the location is spelt, and wherever the directory is."""
    first, moved, other = (tmp_path / name for name in ("first", "moved", "other"))
    for directory, query in ((first, "a-query"), (other, "another")):
        directory.mkdir()
        (directory / "metadata").write_text(json.dumps({"id": query}))
    locations = [f"{first}", f"{first}/", f"file://{first}", f"file:{first}", f"{tmp_path}/./first"]
    names = {with_sink_name(stream_write_options(at(location), VALUE)).sink for location in locations}
    first.rename(moved)
    names.add(with_sink_name(stream_write_options(at(str(moved)), VALUE)).sink)
    assert names == {"a-query"}
    assert with_sink_name(stream_write_options(at(str(other)), VALUE)).sink == "another"


def at(location: str) -> dict[str, str]:
    return {**STREAM, "checkpointlocation": location}


@pytest.mark.parametrize("location", ["hdfs://n/c", "/no/such/checkpoint"])
def test_stream_whose_checkpoint_cannot_be_read_needs_a_name(location: str) -> None:
    """The refusal says under which name a former release has written."""
    (complaint,) = complaints(with_sink_name, stream_write_options(at(location), VALUE))
    assert complaint.startswith("transactionalIdPrefix: is required")
    former = hashlib.sha1(location.encode(), usedforsecurity=False).hexdigest()[:16]
    assert complaint.endswith(f"goes on with {former}")
    named = {**at(location), "transactionalidprefix": former}
    assert with_sink_name(stream_write_options(named, VALUE)).sink == former
    without = {**at(location), "delivery.guarantee": "at-least-once"}
    assert with_sink_name(stream_write_options(without, VALUE)).sink is None


def test_stream_options_survive_pickling() -> None:
    options = stream_write_options(STREAM, VALUE)
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert pickle.loads(pickle.dumps(options)) == options


def test_prefix_overrides_the_name_of_the_checkpoint() -> None:
    assert stream_write_options({**STREAM, "transactionalidprefix": "orders"}, VALUE).sink == "orders"


def test_stream_without_a_name_is_refused_unless_at_least_once() -> None:
    unnamed = {**BOOTSTRAP, "topic": "t"}
    (complaint,) = complaints(stream_write_options, unnamed, VALUE)
    assert complaint.startswith("transactionalIdPrefix: is required")
    stream_write_options({**unnamed, "delivery.guarantee": "at-least-once"}, VALUE)


def test_settings_reach_the_producer() -> None:
    options = stream_write_options(
        {
            **STREAM,
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "1000",
            "kafka.max.request.size": "2000",
            "kafka.buffer.memory": "3000",
            "kafka.request.timeout.ms": "4000",
            "kafka.delivery.timeout.ms": "5000",
            "transactiontimeoutms": "6000",
        },
        VALUE,
    )
    config = options.producer_config("an-id")
    assert options.compression is Compression.ZSTD
    assert (config.compression, config.batch_bytes, config.max_request_bytes) == ("zstd", 1000, 2000)
    assert (config.buffer_bytes, config.request_timeout_ms, config.delivery_timeout_ms) == (3000, 4000, 5000)
    assert (config.transactional_id, config.transaction_timeout_ms) == ("an-id", 6000)
    assert options.producer_config(None).transactional_id is None


def test_options_with_several_problems_report_all_at_once() -> None:
    found = complaints(
        stream_write_options,
        {
            "checkpointlocation": "/c",
            "delivery.guarantee": "maybe",
            "kafka.acks": "1",
            "kafka.transactional.id": "mine",
            "transactiontimeoutms": "0",
            "kafka.compresion.type": "lz4",
        },
        [("key", "int"), ("headers", "map<string,string>")],
    )
    assert [line.partition(":")[0] for line in sorted(found)] == [
        "column headers",
        "column key",
        "column value",
        "delivery.guarantee",
        "kafka.acks",
        "kafka.bootstrap.servers",
        "kafka.compresion.type",
        "kafka.transactional.id",
        "topic",
        "transactionTimeoutMs",
    ]
    assert any("exactly-once or at-least-once" in line for line in found)
    assert any("did you mean kafka.compression.type?" in line for line in found)


def test_topic_column_replaces_the_option() -> None:
    assert stream_write_options({**BOOTSTRAP, "checkpointlocation": "/c"}, [*VALUE, ("topic", "string")]).topic is None


def test_other_columns_are_left_out() -> None:
    columns = [*VALUE, ("key", "string"), ("partition", "int"), ("offset", "bigint")]
    stream_write_options(STREAM, columns)


def test_batch_with_an_application_and_a_version_has_a_name() -> None:
    named = {**BOOTSTRAP, "topic": "t", "txnappid": "app", "txnversion": "7"}
    options = batch_write_options(named, VALUE, overwrite=False)
    assert (options.application, options.version) == ("app", 7)
    assert options.sink is not None
    other_topic = batch_write_options({**named, "topic": "u"}, VALUE, overwrite=False)
    assert other_topic.sink != options.sink
    other = batch_write_options({**named, "txnappid": "other"}, VALUE, overwrite=False)
    prefixed = [
        batch_write_options({**each, "transactionalidprefix": "p"}, VALUE, overwrite=False).sink
        for each in (named, {**named, "topic": "u"}, {**named, "txnappid": "other"})
    ]
    assert len({options.sink, other_topic.sink, other.sink, *prefixed}) == 6
    assert all((name or "").startswith("p.") for name in prefixed)
    assert batch_write_options({**BOOTSTRAP, "topic": "t"}, VALUE, overwrite=False).sink is None
    without_name = batch_write_options(
        {**BOOTSTRAP, "topic": "t", "transactionalidprefix": "p"}, VALUE, overwrite=False
    )
    assert (without_name.sink, without_name.application) == ("p", None)


@pytest.mark.parametrize(
    ("given", "overwrite", "complaint"),
    [
        ({"txnappid": "app"}, False, "txnAppId, txnVersion: are given together"),
        ({"txnversion": "1"}, False, "txnAppId, txnVersion: are given together"),
        (
            {"transactionalidprefix": "p", "delivery.guarantee": "at-least-once"},
            False,
            "transactionalIdPrefix: has no use with delivery.guarantee=at-least-once",
        ),
        ({}, True, 'mode: "overwrite" cannot be'),
    ],
)
def test_batch_options_that_contradict_each_other_are_refused(
    given: dict[str, str], overwrite: bool, complaint: str
) -> None:
    (found,) = complaints(batch_write_options, {**BOOTSTRAP, "topic": "t", **given}, VALUE, overwrite=overwrite)
    assert found.startswith(complaint)


def test_version_without_transactions_is_refused() -> None:
    given = {**BOOTSTRAP, "topic": "t", "txnappid": "a", "txnversion": "1", "delivery.guarantee": "at-least-once"}
    found = complaints(batch_write_options, given, VALUE, overwrite=False)
    assert [line.partition(":")[0] for line in found] == ["txnAppId", "txnVersion"]
    assert "has no effect with delivery.guarantee=at-least-once" in found[0]


def test_stream_with_options_of_batches_is_refused() -> None:
    found = complaints(stream_write_options, {**STREAM, "txnappid": "a", "txnversion": "1"}, VALUE)
    assert [line.partition(":")[0] for line in found] == ["txnAppId", "txnVersion"]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topic": "a b"}, r"topic: 'a b' is not valid .*letters, digits, dots"),
        ({"topic": "x" * 250}, r"topic: .* is not valid .*1 to 249 letters"),
        ({"topic": ".."}, r"topic: '\.\.' is not valid"),
        ({"topic": ""}, r"topic: '' is not valid"),
        ({"topic": "__consumer_offsets"}, "topic: .*internal topic.*may be the name of another topic"),
        ({"topic": "__transaction_state"}, "topic: .*internal topic"),
        ({"topic": "__spark_sink_state"}, "topic: .*state topic.*may be the name of another topic"),
        ({"topic": "__spark_sink_state", "statetopic": "mine"}, "topic: .*state topic"),
        ({"topic": "mine", "statetopic": "mine"}, r"topic: .*state topic \(stateTopic\)"),
        ({"statetopic": "a b"}, "stateTopic: 'a b' is not valid .*may be the name of another topic"),
        ({"statetopic": "__consumer_offsets"}, "stateTopic: .*internal topic.*may be the name of another topic"),
    ],
)
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_topics_that_cannot_be_written_are_refused_before_anything_is_read(
    given: dict[str, str], complaint: str, guarantee: str
) -> None:
    options = {**STREAM, **given, "delivery.guarantee": guarantee}
    problems = complaints(stream_write_options, options, VALUE)
    assert any(re.search(complaint, each) for each in problems), problems
    del options["checkpointlocation"]
    problems = complaints(batch_write_options, options, VALUE, overwrite=False)
    assert any(re.search(complaint, each) for each in problems), problems
