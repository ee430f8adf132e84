"""Sinks that cannot work are refused by the driver, before any task has begun; a real broker, no JVM."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.spark_connector.sink.commit.sink_errors import BatchNotBegun, BatchNotDecided
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.stream_writer import OncelogStreamWriter
from oncelog.spark_connector.sink.write_options import batch_write_options, stream_write_options
from tests.processes import OncelogProcess

_VALUE = [("value", "binary")]


def test_transaction_time_out_that_brokers_do_not_allow_is_refused_with_their_maximum(
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
    "end",
    [
        '{"%s": {"0": 12}}',
        '{"v": 1, "start": {}, "end": {"orders": {"0": 1}, "%s": {"3": 1}}, "ids": {}, "revision": 2}',
    ],
)
def test_stream_that_reads_its_own_state_topic_is_refused(
    broker: OncelogProcess, new_name: Callable[[str], str], tmp_path: Path, end: str
) -> None:
    """By whichever source: each of its batches would make the next one."""
    state_topic = new_name("state")
    given = _reading_its_decisions(broker, new_name, tmp_path, state_topic, end % state_topic)
    refused = f"UnsuitableStateTopic: the query reads the state topic {state_topic}"
    with pytest.raises(BatchNotBegun, match=refused) as raised:
        pickle.dumps(OncelogStreamWriter(stream_write_options(given, _VALUE)))
    assert f"remove {tmp_path}/offsets/0 and {tmp_path}/offsets/.0.crc" in str(raised.value)
    _plan(tmp_path, end % "others")
    pickle.dumps(OncelogStreamWriter(stream_write_options(given, _VALUE)))


def test_batch_that_former_release_planned_from_its_state_topic_is_finished_with_warning(
    broker: OncelogProcess, new_name: Callable[[str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark runs a pending batch as it was planned, whatever the source leaves out now."""
    state_topic = new_name("state")
    end = json.dumps({"v": 1, "start": {}, "end": {"orders": {"0": 1}, state_topic: {"3": 1}}, "ids": {}})
    given = _reading_its_decisions(broker, new_name, tmp_path, state_topic, end)
    pickle.dumps(OncelogStreamWriter(stream_write_options(given, _VALUE)))
    assert f"a former release planned batch 0 with the state topic {state_topic}" in caplog.text


def _reading_its_decisions(
    broker: OncelogProcess, new_name: Callable[[str], str], checkpoint: Path, state_topic: str, end: str
) -> dict[str, str]:
    """Return the options of a sink whose first batch is planned."""
    (checkpoint / "offsets").mkdir()
    _plan(checkpoint, end)
    return {
        "kafka.bootstrap.servers": broker.address,
        "topic": new_name("t"),
        "stateTopic": state_topic,
        "transactionalIdPrefix": new_name("sink"),
        "checkpointLocation": str(checkpoint),
    }


def _plan(checkpoint: Path, end: str) -> None:
    (checkpoint / "offsets" / "0").write_text("\n".join(["v1", json.dumps({"batchTimestampMs": 1}), end]))
