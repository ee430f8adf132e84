"""``oncelog serve`` as a process: what it prints, what it refuses, how it ends."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.clients import VERSION
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.bound_process import start_bound
from tests.command import Oncelog
from tests.processes import LIMIT_SECONDS

READY = re.compile(rf"\[KafkaServer id=(\d+)\] started \(oncelog {re.escape(VERSION)}\) at PLAINTEXT://localhost:(\d+)")


def command(*options: object) -> list[str]:
    return [sys.executable, "-m", "oncelog", "serve", *map(str, options)]


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")} | variables


class Running:
    """A broker process that has said that it is ready."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, broker_id: int) -> None:
        self.process = process
        self.port = port
        self.broker_id = broker_id

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Exit code, and the rest of standard output and error."""
        self.process.send_signal(number)
        rest, log = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, rest + log

    def metadata(self, topic: str) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_SECONDS) as client:
            client.sendall(b"".join(encode_request(1, "test", request, 12)))
            stream = client.makefile("rb")
            response = stream.read(int.from_bytes(stream.read(4), "big"))
            return parse_response(MetadataResponse, 12, memoryview(response))[1]


@contextmanager
def serving(options: Sequence[object], **variables: str) -> Iterator[Running]:
    process = start_bound(
        command(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = READY.match(line)
        assert match is not None, (line, process.communicate()[1] if process.poll() is not None else "")
        yield Running(process, int(match[2]), int(match[1]))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*options: object, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        command(*options),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=environment(**variables),
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_broker_prints_its_readiness_once_and_ends_cleanly_at_a_signal(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with serving(["--port", 0, "--data-dir", tmp_path / "data", "--ready-file", ready]) as broker:
        assert ready.read_text() == f"localhost:{broker.port}\n"
        assert broker.metadata("orders").topics[0].error_code == 0
        code, rest = broker.end(signal.SIGTERM)
    assert code == 0
    assert "shut down completed" in rest
    assert "one broker on the embedded metadata store" in rest
    assert "Traceback" not in rest
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_start_that_waits_for_zookeeper_ends_at_a_signal(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        zookeeper.settimeout(LIMIT_SECONDS)
        where = f"127.0.0.1:{zookeeper.getsockname()[1]}"
        options = command("--port", 0, "--data-dir", tmp_path, "--broker-id", 1, "--zookeeper", where)
        with start_bound(options, stderr=subprocess.PIPE, text=True, env=environment()) as process:
            accepted, _ = zookeeper.accept()
            with accepted:
                process.send_signal(signal.SIGTERM)
                _, log = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0
    assert "stopped before the start was complete" in log
    assert "Traceback" not in log


def test_topics_survive_kill_9(tmp_path: Path) -> None:
    options = ["--port", 0, "--data-dir", tmp_path]
    with serving(options) as broker:
        (created,) = broker.metadata("orders").topics
        assert broker.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with serving([*options, "--set", "auto.create.topics.enable=false"]) as broker:
        (found,) = broker.metadata("orders").topics
        assert found.topic_id == created.topic_id
        assert broker.end(signal.SIGINT)[0] == 0


def test_broker_raises_its_limit_of_open_files_to_the_hard_limit(tmp_path: Path) -> None:
    """A process is given 1024 mostly, which are gone after so many segments."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with serving(["--port", 0, "--data-dir", tmp_path / "data"]) as running:
            limits = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
            running.end(signal.SIGTERM)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits == (hard, hard)


def test_second_start_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving(["--port", 0, "--data-dir", tmp_path]) as first:
        code, log = refused("--port", 0, "--data-dir", tmp_path)
        holder = first.process.pid
    assert code == 1
    assert f"oncelog: the data directory is in use by another broker (process {holder}): {tmp_path}/.lock is" in log
    assert "choose another directory with log.dirs (--data-dir)" in log
    assert "Traceback" not in log


def test_data_directory_that_is_a_file_is_named_with_its_setting(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        code, log = refused("--port", 0, "--data-dir", path)
        assert code == 1
        assert re.search(rf"cannot start: {path}: (it is n|N)ot a directory; log.dirs \(--data-dir\) must be", log)
        assert "Errno" not in log


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--host", "host.invalid"], "listeners (--host)"),
        (["--set", "listeners=A://localhost:0,B://host.invalid:0"], "listeners (--host)"),
        (["--port", 0, "--set", "oncelog.http.listener=host.invalid:0"], "oncelog.http.listener"),
    ],
)
def test_unknown_host_is_refused_before_anything_is_written(tmp_path: Path, options: list[object], named: str) -> None:
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT"
    code, log = refused(*options, "--set", protocols, "--data-dir", tmp_path / "data")
    assert code == 2
    assert f"{named}: this machine does not know the host host.invalid (" in log
    assert "Traceback" not in log
    assert not (tmp_path / "data").exists()


def test_data_directory_is_reported_to_clients_as_an_absolute_path(tmp_path: Path) -> None:
    directory = Path(os.path.relpath(tmp_path)) / "data"
    with serving(["--port", 0, "--data-dir", directory]) as broker:
        oncelog = Oncelog(f"localhost:{broker.port}")
        assert [each["path"] for each in oncelog.json("log-dirs")] == [str(tmp_path / "data")]
        settings = {each["name"]: each["value"] for each in oncelog.json("config describe broker 1")}
        assert settings["log.dirs"] == str(tmp_path / "data")


def test_start_logs_what_its_internal_topics_hold_in_one_line(tmp_path: Path) -> None:
    with serving(["--port", 0, "--data-dir", tmp_path]) as broker:
        oncelog = Oncelog(f"localhost:{broker.port}")
        oncelog("topic create orders")
        for number in range(4):
            oncelog(f"group seek group-{number} --to 0 --topic orders")
        broker.end(signal.SIGTERM)
    with serving(["--port", 0, "--data-dir", tmp_path]) as broker:
        assert len(Oncelog(f"localhost:{broker.port}").json("group list")) == 4
        _, log = broker.end(signal.SIGTERM)
    (line,) = re.findall(r"INFO Loaded .*", log)
    assert line.startswith("INFO Loaded 4 groups of __consumer_offsets, partitions ")


def test_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(["--port", 0, "--data-dir", tmp_path / "one"]) as broker:
        code, log = refused("--port", broker.port, "--data-dir", tmp_path / "two")
        assert code == 1
        assert f"{broker.port}" in log
        assert "address already in use" in log.lower()
        assert "choose another address with listeners (--port" in log
        assert "Traceback" not in log


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (["--set", "num.partitions=0"], {}, "num.partitions='0' is not valid: expected a whole number, at least 1"),
        ([], {"KAFKA_NUM_PARTITIONS": "x"}, "num.partitions='x' is not valid: expected a whole number, at least 1"),
        (["--log-level", "LOUD"], {}, "--log-level LOUD is not valid"),
    ],
)
def test_wrong_configuration_is_one_sentence(
    tmp_path: Path, options: list[str], variables: dict[str, str], message: str
) -> None:
    code, log = refused("--port", 0, "--data-dir", tmp_path / "data", *options, **variables)
    assert code == 2
    assert message in log
    assert "Traceback" not in log
    assert not (tmp_path / "data").exists()


def test_sources_of_configuration_are_all_read_and_odd_settings_logged(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"log.dirs={tmp_path}/data\nlisteners=PLAINTEXT://localhost:0\nnum.partition=9\nbroker.id=3\n"
    )
    options = ["--config", properties, "--set", "message.max.bytes=1000"]
    with serving(options, KAFKA_NUM_PARTITIONS="4", KAFKA_NUM_IO_THREADS="16", KAFKA_HEAP_OPTS="-Xmx1G") as broker:
        assert broker.broker_id == 3
        assert len(broker.metadata("orders").topics[0].partitions) == 4
        _, log = broker.end(signal.SIGTERM)
    warning = "unknown setting num.partition: did you mean num.partitions?"
    assert log.count(warning) == 2
    assert log.rindex(warning) > log.index("logs loaded"), "once more when the broker has started"
    assert log.count("num.io.threads has no effect") == 1
    assert "heap" not in log


def test_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=5\n")
    code, log = refused("--port", 0, "--data-dir", tmp_path, "--broker-id", 6)
    assert code == 1
    assert "belongs to broker 5, not 6" in log
    assert "--broker-id 5" in log
    assert "--data-dir" in log


def test_address_that_is_of_no_use_to_other_machines_is_warned_of_with_the_setting_that_helps(
    tmp_path: Path,
) -> None:
    host = socket.gethostname()
    with serving(["--set", "listeners=PLAINTEXT://:0", "--data-dir", tmp_path]) as broker:
        log = broker.end(signal.SIGTERM)[1]
    assert f"the advertised address PLAINTEXT://localhost:{broker.port} is on the client's own machine" in log
    assert f"set advertised.listeners=PLAINTEXT://{host}:{broker.port}" in log
    with serving(["--port", 0, "--data-dir", tmp_path]) as broker:
        assert "own machine" not in broker.end(signal.SIGTERM)[1]


def test_serve_with_debug_level_logs_requests_with_their_clients_names_escaped(tmp_path: Path) -> None:
    forged = "x\n[2026-01-01 00:00:00,000] ERROR the disk failed (oncelog.broker.start)\x1b[2J\x07"
    logs = {}
    for level in ("info", "debug"):
        with serving(["--port", 0, "--data-dir", tmp_path / level, "--log-level", level]) as broker:
            with socket.create_connection(("127.0.0.1", broker.port), timeout=LIMIT_SECONDS) as client:
                client.sendall(b"".join(encode_request(1, forged, MetadataRequest(), 12)))
                assert client.recv(4)
            logs[level] = broker.end(signal.SIGTERM)[1]
    assert "Metadata v12, correlation id 1, of client" not in logs["info"]
    assert "Metadata v12, correlation id 1, of client" in logs["debug"]
    assert "Accepted the connection of 127.0.0.1" in logs["debug"]
    lines = logs["debug"].splitlines()
    assert not [line for line in lines if line.startswith("[2026-01-01")]
    assert all(line.isprintable() for line in lines)


def test_serve_limits_the_lines_of_a_client_that_sends_no_kafka(tmp_path: Path) -> None:
    with serving(["--port", 0, "--data-dir", tmp_path]) as broker:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", broker.port), timeout=LIMIT_SECONDS) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.recv(1) == b""
        _, log = broker.end(signal.SIGTERM)
    written = log.count(" WARNING Closing the connection of 127.0.0.1")
    suppressed = re.findall(r"(\d+) more lines like this of 127\.0\.0\.1 were suppressed", log)
    assert written < 100
    assert written + sum(map(int, suppressed)) == 200


def test_serve_whose_ready_file_cannot_be_written_names_that_file(tmp_path: Path) -> None:
    ready_file = tmp_path / "missing" / "ready"
    done = subprocess.run(
        command("--port", 0, "--data-dir", tmp_path / "data", "--ready-file", ready_file),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=environment(),
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"oncelog: the ready file {ready_file} cannot be written: No such file or directory"
    assert "cannot start" not in done.stderr
