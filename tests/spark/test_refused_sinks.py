"""Sinks that cannot work are refused by the driver, before any task has begun; a real broker, no JVM."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_connector.sink.sink_errors import BatchNotBegun, BatchNotDecided
from spark_connector.sink_session import SinkSession
from spark_connector.stream_writer import OncelogStreamWriter
from spark_connector.write_options import batch_write_options, stream_write_options
from tests.processes import OncelogProcess

_VALUE = [("value", "binary")]


def test_a_transaction_time_out_that_brokers_do_not_allow_is_refused_with_the_longest_that_they_do(
    broker: OncelogProcess, new_name: Callable[[str], str]
) -> None:
    given = {"kafka.bootstrap.servers": broker.address, "topic": new_name("t"), "transactionTimeoutMs": "1000000000"}
    session = SinkSession(batch_write_options(given, _VALUE, overwrite=False))
    with pytest.raises(
        BatchNotDecided, match=r"transactionTimeoutMs: 1000000000 is longer.*up to 900000.*max\.timeout"
    ):
        session.begin_unnamed()
    allowed = batch_write_options(given | {"transactionTimeoutMs": "900000"}, _VALUE, overwrite=False)
    assert not SinkSession(allowed).begin_unnamed().may_decide


@pytest.mark.parametrize(
    "end", ['{"%s": {"0": 12}}', '{"v": 1, "start": {}, "end": {"orders": {"0": 1}, "%s": {"3": 1}}, "ids": {}}']
)
def test_a_stream_that_reads_its_own_state_topic_is_refused(
    broker: OncelogProcess, new_name: Callable[[str], str], tmp_path: Path, end: str
) -> None:
    """By whichever source: each of its batches would make the next one."""
    state_topic = new_name("state")
    given = {
        "kafka.bootstrap.servers": broker.address,
        "topic": new_name("t"),
        "stateTopic": state_topic,
        "transactionalIdPrefix": new_name("sink"),
        "checkpointLocation": str(tmp_path),
    }
    (tmp_path / "offsets").mkdir()
    entry = "\n".join(["v1", json.dumps({"batchTimestampMs": 1}), end % state_topic])
    (tmp_path / "offsets" / "0").write_text(entry)
    with pytest.raises(BatchNotBegun, match=f"UnsuitableStateTopic: the query reads the state topic {state_topic}"):
        pickle.dumps(OncelogStreamWriter(stream_write_options(given, _VALUE)))
    (tmp_path / "offsets" / "0").write_text(entry.replace(state_topic, "others"))
    pickle.dumps(OncelogStreamWriter(stream_write_options(given, _VALUE)))
