"""librdkafka's driver says what became of the records of a phase."""

import pytest
from confluent_kafka import KafkaException, Producer

from tests.interop.late_frames.confluent_client import send_phase
from tests.interop.late_frames.workload import Phase


def test_phase_that_is_not_delivered_raises_its_error() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 10, "log_level": 0})
    with pytest.raises(KafkaException) as raised:
        send_phase(producer, "topic", Phase(0, ("0/0/0/0", "0/0/0/1")))
    assert raised.value.args[0].name() == "_MSG_TIMED_OUT"
