"""A broker whose descriptors clients have used up: logs still get theirs."""

import contextlib
import socket
from pathlib import Path
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.produce import ProduceResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import LIMIT_SECONDS, OncelogProcess
from tests.simulation.requests import PRODUCE_VERSION, batch, produce

LIMIT = 200
SEGMENTS = 20
CREATE_VERSION = 7


class FewDescriptors(OncelogProcess):
    """May open ``LIMIT`` files."""

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *super().command()]


class Client:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS)
        self._stream = self._socket.makefile("rb")

    def ask(self, request: Message, response_type: type[Message], version: int) -> Any:
        self._socket.sendall(b"".join(encode_request(1, "test", request, version)))
        size = int.from_bytes(self._stream.read(4), "big")
        return parse_response(response_type, version, memoryview(self._stream.read(size)))[1]

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def test_idle_connections_that_take_all_descriptors_keep_no_segment_from_being_rolled(tmp_path: Path) -> None:
    broker = FewDescriptors(tmp_path, ["log.segment.bytes=1000", "num.partitions=1", "log.cleaner.enable=false"])
    broker.start()
    try:
        with contextlib.ExitStack() as opened:
            client = Client(broker.port)
            opened.callback(client.close)
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, CREATE_VERSION)
            assert created.topics[0].error_code == ErrorCode.NONE
            for _ in range(LIMIT):  # More than there can be.
                opened.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=LIMIT_SECONDS))
            for _ in range(SEGMENTS):
                request = produce(TopicPartition("t", 0), batch([bytes(900)]))
                response = client.ask(request, ProduceResponse, PRODUCE_VERSION)
                assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert len(list((broker.data_directory / "t-0").glob("*.log"))) >= SEGMENTS
        assert broker.process is not None
        assert broker.process.poll() is None
    finally:
        broker.stop()
