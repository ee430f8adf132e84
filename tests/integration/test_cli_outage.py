"""The command line while brokers are away, stuck, or out of reach: what it says, how soon, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.command import SECONDS, Oncelog
from tests.processes import OncelogProcess, free_port

SOON_SECONDS = 30.0
"""Three seconds, and what a busy machine adds; far below ``LONG_SECONDS``."""
END_SECONDS = 25.0
"""Within which a command ends after SIGTERM, whatever state the cluster is in; below the timeout of a request."""
LONG_SECONDS = 120
"""The timeout of commands that must report something long before."""


class Running:
    """A command that runs, and the lines that it has printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.printed = _Lines(process.stdout)
        self.said = _Lines(process.stderr)

    def end(self, seconds: float = SECONDS) -> int:
        code = self.process.wait(seconds)
        self._read_out()
        return code

    def kill(self) -> None:
        """End the process and read its streams out, since the end of the block closes them under their readers."""
        self.process.kill()
        self._read_out()

    def _read_out(self) -> None:
        for lines in (self.printed, self.said):
            lines.join()


class _Lines:
    """Lines of a stream, as they come."""

    def __init__(self, stream: IO[str] | None) -> None:
        assert stream is not None
        self._stream = stream
        self._news = threading.Condition()
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def find(self, text: str, seconds: float = SECONDS, *, also: str = "") -> str:
        """The first line with the texts, as soon as there is one."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line and also in line]

        with self._news:
            assert self._news.wait_for(found, seconds), f"no {text!r} {also!r} within {seconds} s: {self.lines}"
            return found()[0]

    def join(self) -> None:
        self._thread.join(SECONDS)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def running(oncelog: Oncelog, words: str) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, "-m", "oncelog", *words.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=oncelog.environment,
    ) as process:
        command = Running(process)
        try:
            yield command
        finally:
            command.kill()


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that accepts connections, by the kernel alone, and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def advertising_nowhere(directory: Path) -> Iterator[tuple[Oncelog, str]]:
    """A broker that responds at its address and advertises another one."""
    port, other = free_port(), free_port()
    with OncelogProcess(directory, [f"advertised.listeners=PLAINTEXT://127.0.0.1:{other}"], port):
        yield Oncelog(f"127.0.0.1:{port}"), f"127.0.0.1:{other}"


def test_member_whose_coordinator_is_out_of_reach_ends_in_time(tmp_path: Path) -> None:
    with advertising_nowhere(tmp_path) as (oncelog, other):
        oncelog.run("produce orders --timeout 1", "line\n")
        with running(oncelog, "consume orders --group billing --timeout 15") as member:
            member.said.find(f"broker 1 cannot be reached at the address that it advertises, {other}", SOON_SECONDS)
            member.said.find("oncelog doctor")
            assert member.end(15 + SOON_SECONDS) == 3
        assert "nothing could be read within 15 s" in member.said.text
        assert "Traceback" not in member.said.text


def test_leader_that_is_out_of_reach_is_named_for_programs_too(tmp_path: Path) -> None:
    with advertising_nowhere(tmp_path) as (oncelog, other):
        oncelog.run("produce orders --timeout 1", "line\n")
        (problem,) = oncelog.json("topic describe orders")["problems"]
        assert f"broker 1 is not reached: {other}" in problem


@pytest.mark.parametrize(
    ("words", "awaited"),
    [
        ("topic list", "accepts connections and does not respond: no response to ApiVersions"),
        ("consume orders --group billing", "accepts connections and does not respond: no response to ApiVersions"),
        ("wait", "accepts connections and does not respond: no response to ApiVersions"),
    ],
)
def test_silent_address_is_named_soon(silent: str, words: str, awaited: str) -> None:
    with running(Oncelog(silent), f"{words} --timeout {LONG_SECONDS}") as command:
        said = command.said.find("still waiting", SOON_SECONDS)
        assert f"{silent} {awaited}" in said
        command.said.find("stopped, stuck or overloaded")
        assert command.process.poll() is None


def test_silent_address_ends_a_command_with_the_same_explanation(silent: str) -> None:
    said = Oncelog(silent).fails("topic list --timeout 10", exit_code=3)
    assert said.count("still waiting") == 1
    assert f"Error: {silent}: accepts connections, but does not respond" in said
    assert said.count("stopped, stuck or overloaded") == 2
    assert "is stopped or overloaded" not in said
    assert "is a broker running there" not in said


def test_json_output_reports_a_silent_address_at_the_end_only(silent: str) -> None:
    said = Oncelog(silent).fails("topic list --timeout 10 --format json", exit_code=3)
    assert "still waiting" not in said
    assert f"{silent}: accepts connections, but does not respond" in said


def test_controller_that_is_out_of_reach_and_a_broker_that_is_not_there_are_named_soon(tmp_path: Path) -> None:
    with advertising_nowhere(tmp_path) as (oncelog, other):
        with running(oncelog, f"topic create orders --timeout {LONG_SECONDS}") as command:
            said = command.said.find("still waiting", SOON_SECONDS)
            assert f"broker 1 cannot be reached at the address that it advertises, {other}" in said
        for words in (
            "config describe broker 7",
            "config alter broker 7 --set log.cleaner.backoff.ms=14000",
            "log-dirs --broker-id 7",
            "txn find-hanging --broker-id 7",
        ):
            with running(oncelog, f"{words} --timeout {LONG_SECONDS}") as command:
                said = command.said.find("Error:", SOON_SECONDS)
                assert "broker 7 is not in the cluster now, which has brokers 1" in said
                command.said.find("oncelog health")


def test_reader_reports_brokers_that_go_and_return_and_ends_without_them(tmp_path: Path) -> None:
    broker = OncelogProcess(tmp_path)
    with broker:
        oncelog = Oncelog(broker.address)
        advertised = oncelog.json("health")["brokers"][0]["address"]
        oncelog("topic create orders -p 1")
        oncelog("produce orders", "first\n")
        with running(oncelog, "consume orders --group billing --format value") as reader:
            reader.printed.find("first")
            broker.kill()
            said = reader.said.find("still waiting", SOON_SECONDS)
            assert f"broker 1 at {advertised} cannot be reached: Connection refused" in said
            broker.start()
            reader.said.find("reached again: ", also=f"broker 1 at {advertised}")
            oncelog("produce orders", "second\n")
            reader.printed.find("second")
            assert oncelog.json("group describe billing")["state"] == "Stable"
            oncelog("produce orders", "third\n")
            reader.printed.find("third")
            broker.kill()
            reader.process.terminate()
            code = reader.end(END_SECONDS)
    assert reader.said.text.count("still waiting") == 1
    if "the last commit did not get through" in reader.said.text:  # Unless it was due when the third was printed.
        assert code == 3
        assert "the next run of the group continues at orders-0 at offset " in reader.said.text
    else:
        assert code == 0
    assert "Read 3 records." in reader.said.text
    assert "Traceback" not in reader.said.text


def test_failed_last_commit_prints_where_the_next_run_continues(tmp_path: Path) -> None:
    broker = OncelogProcess(tmp_path)
    with broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        oncelog("produce orders", "0\n1\n")
        with running(oncelog, "consume orders --group billing --format value") as reader:
            reader.printed.find("1")
            for _ in range(100):
                if oncelog.run("group describe billing --format json").stdout.count('"committed": 2'):
                    break
            oncelog("produce orders", "".join(f"{number}\n" for number in range(2, 500)))
            reader.printed.find("499")
            os.kill(broker.pid, signal.SIGSTOP)  # It keeps its connections, and says nothing.
            try:
                reader.process.terminate()
                code = reader.end(END_SECONDS)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
    if code:
        assert code == 3
        assert "the next run of the group continues at orders-0 at offset 2" in reader.said.text
    assert "Read 500 records." in reader.said.text


def test_member_whose_output_is_not_read_stays_in_its_group(tmp_path: Path) -> None:
    """``| less``: the other member gets its share meanwhile, and nothing is lost."""
    with OncelogProcess(tmp_path) as broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 2")
        for partition in range(2):
            oncelog(f"produce orders -p {partition}", f"{'x' * 100}\n" * 5000)
        words = "consume orders --group billing --format value"
        with subprocess.Popen(
            [sys.executable, "-m", "oncelog", *words.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=oncelog.environment,
        ) as blocked:
            try:
                assert blocked.stdout is not None
                assert blocked.stdout.readline()
                with running(oncelog, f"{words} -n 1") as other:
                    assert other.printed.find("x" * 100)
                    assert other.end() == 0
                blocked.terminate()
                code = blocked.wait(END_SECONDS)
                assert blocked.stderr is not None
                assert code == 0, blocked.stderr.read()
            finally:
                blocked.kill()


def test_lost_lines_are_reported_at_once_and_counted_at_the_end(tmp_path: Path) -> None:
    broker = OncelogProcess(tmp_path)
    with broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        with running(oncelog, "produce orders --timeout 10") as writer:
            assert writer.process.stdin is not None
            writer.process.stdin.write("1\n2\n3\n")
            writer.process.stdin.flush()
            assert oncelog("consume orders -n 3 --format value") == "1\n2\n3\n"
            broker.kill()
            writer.process.stdin.write("4\n5\n")
            writer.process.stdin.flush()
            said = writer.said.find("line 4 is not written", SECONDS)
            assert f"{broker.address} cannot be reached: Connection refused" in said
            assert writer.end() == 3
    assert writer.said.find("3 written, 2 not: lines 4-5")
    assert "reading stopped after line 5" in writer.said.text
    assert "Traceback" not in writer.said.text


def test_writer_that_is_stopped_says_what_is_written(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        for is_stuck in (False, True):
            with running(oncelog, f"produce orders --timeout {LONG_SECONDS}") as writer:
                assert writer.process.stdin is not None
                writer.process.stdin.write("1\n")
                writer.process.stdin.flush()
                assert oncelog(f"consume orders -n 1 --from {int(is_stuck)} --format value") == "1\n"
                if is_stuck:
                    os.kill(broker.pid, signal.SIGSTOP)
                    writer.process.stdin.write("2\n")
                    writer.process.stdin.flush()
                    writer.said.find("no response to Produce", SOON_SECONDS)
                try:
                    writer.process.terminate()
                    assert writer.end(END_SECONDS) == 128 + signal.SIGTERM
                finally:
                    os.kill(broker.pid, signal.SIGCONT)
            if is_stuck:
                lost = "1 written, 1 unknown: line 2 may be written, only its acknowledgement is missing"
                assert f"Error: {lost}; reading stopped after line 2" in writer.said.text
            else:
                assert writer.said.text == "Stopped: 1 written; reading stopped after line 1"
            assert "Traceback" not in writer.said.text


def test_line_that_is_too_large_holds_up_no_other(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        done = oncelog.run("produce orders", f"1\n{'x' * 2_000_000}\n3\n{'y' * 2_000_000}\n5\n")
        assert done.returncode == 1
        assert "line 2 is not written: orders-0: MESSAGE_TOO_LARGE" in done.stderr
        assert "max.message.bytes" in done.stderr
        assert "3 written, 2 not: lines 2, 4\n" in done.stderr
        assert oncelog("consume orders -e --format value").split() == ["1", "3", "5"]


def test_missing_topic_that_brokers_do_not_create_ends_a_writer_within_seconds(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, ["auto.create.topics.enable=false"]) as broker:
        said = Oncelog(broker.address).fails("produce orders --timeout 600", text="1\n")
    assert (
        "Error: topic orders: UNKNOWN_TOPIC_OR_PARTITION: it does not exist, and the brokers do not create it" in said
    )
    assert "auto.create.topics.enable=false" in said
    assert "`oncelog topic create`" in said


def test_group_whose_internal_topic_needs_more_brokers_is_a_problem_that_health_explains(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, ["offsets.topic.replication.factor=3"]) as broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        found = oncelog.run("health")
        assert found.returncode == 1
        (problem,) = (line for line in found.stdout.splitlines() if line.startswith("Problem: "))
        assert "__consumer_offsets cannot be created" in problem
        assert "offsets.topic.replication.factor is 3, and the cluster has 1 broker" in problem
        refused = oncelog.run("consume orders -g readers -e --timeout 4")
        assert refused.returncode != 0
        assert "`oncelog health`" in refused.stderr


def test_wait_for_brokers_that_do_not_come_names_what_to_do(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker:
        said = Oncelog(broker.address).fails("wait --brokers 2 --timeout 10", exit_code=3)
    assert "Error: after 10 s 1 of 2 brokers" in said
    assert "--timeout" in said
    assert "--bootstrap" in said


def test_reader_that_is_interrupted_before_it_reaches_a_broker_fails(silent: str) -> None:
    with running(Oncelog(silent), f"consume orders --timeout {LONG_SECONDS}") as command:
        command.said.find("still waiting", SOON_SECONDS)
        command.process.send_signal(signal.SIGINT)
        assert command.end(END_SECONDS) == 128 + signal.SIGINT
        assert command.said.lines[-1] == "Stopped"
        assert "Traceback" not in command.said.text
