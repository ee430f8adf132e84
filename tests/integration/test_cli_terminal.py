"""The command line on terminals, pipes and devices that are not as it would like them: an error, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.command import SECONDS, Oncelog
from tests.processes import OncelogProcess, free_port


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as broker:
        oncelog = Oncelog(broker.address)
        oncelog("topic create orders -p 1")
        oncelog(["produce", "orders", "-K", ":"], "grün:groß\n")
        yield oncelog


ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(
    oncelog: Oncelog,
    words: list[str],
    *,
    stdout: int | IO[bytes] = subprocess.PIPE,
    text: bytes = b"",
    environment: dict[str, str] | None = None,
    close: int | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run it with a stream of another kind; ``close`` is the descriptor that the process finds closed."""
    close_it: Callable[[], None] | None = None if close is None else lambda: os.close(close)
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", *words],
        input=text,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**oncelog.environment, **(environment or {})},
        timeout=SECONDS,
        check=False,
        preexec_fn=close_it,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"Exception ignored" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    "words",
    ["consume orders -e", "consume orders -e --format value", "consume --help", "produce --help", "topic list"],
)
def test_terminal_of_ascii_shows_escapes(oncelog: Oncelog, words: str) -> None:
    done = run(oncelog, words.split(), environment=ASCII)
    assert done.returncode == 0
    if words.startswith("consume orders"):
        assert done.stdout.isascii()
        assert rb"gro\xdf" in done.stdout


def test_arguments_are_utf_8_whatever_the_locale_is(oncelog: Oncelog) -> None:
    oncelog("topic create keys -p 1")
    done = run(oncelog, ["produce", "keys", "--key", "grün"], text=b"v\n", environment=ASCII)
    assert done.returncode == 0, done.stderr
    assert '"key": "gr\\u00fcn"' in oncelog("consume keys -e --format json")


def test_argument_that_is_no_utf_8_is_wrong_usage(oncelog: Oncelog) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", "produce", "orders", "--key", b"\xff"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=oncelog.environment,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "topic list",
        "topic list --format json",
        "consume orders -e",
        "consume orders -e --format value",
        "consume orders -e --format value --raw",
        "consume orders -e --group full-device",
        "produce orders --format json",
    ],
)
def test_full_device_is_an_error(oncelog: Oncelog, words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(oncelog, words.split(), stdout=full, text=b"another\n")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    if "--group" in words:  # What was not printed is not committed.
        assert "GROUP_ID_NOT_FOUND" in oncelog.fails("group describe full-device") or not any(
            row["committed"] for row in oncelog.json("group describe full-device")["partitions"]
        )


def test_closed_standard_input_is_an_error(oncelog: Oncelog) -> None:
    done = run(oncelog, ["produce", "orders"], close=0)
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr


@pytest.mark.parametrize(("words", "exit_code"), [("topic list", 0), ("consume orders -e", 2), ("produce orders", 0)])
def test_closed_standard_output_has_the_exit_code_of_the_command(oncelog: Oncelog, words: str, exit_code: int) -> None:
    assert run(oncelog, words.split(), close=1).returncode == exit_code


def test_reader_that_goes_away_ends_the_command_without_a_word(oncelog: Oncelog) -> None:
    oncelog("topic create many -p 1")
    oncelog("produce many", "line\n" * 50_000)
    with subprocess.Popen(
        [sys.executable, "-m", "oncelog", "consume", "many", "--format", "value"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=oncelog.environment,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"line\n"
        reader.stdout.close()
        said = reader.stderr.read()
        assert reader.wait(SECONDS) == 1
    assert b"Traceback" not in said
    assert b"Exception" not in said


def test_unreachable_advertised_address_is_named_with_its_remedy(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    with OncelogProcess(tmp_path, [f"advertised.listeners=PLAINTEXT://127.0.0.1:{other}"], port):
        oncelog = Oncelog(f"127.0.0.1:{port}")
        for words in (
            "produce orders",
            "consume orders -e",
            "consume orders -e --group billing",
            "topic delete orders",
        ):
            done = oncelog.run(f"{words} --timeout 5", "line\n")
            assert done.returncode == 3
            assert f"127.0.0.1:{other}" in done.stderr
            assert "oncelog doctor" in done.stderr
            assert "Traceback" not in done.stderr
        words = [sys.executable, "-m", "oncelog", "consume", "orders", "--group", "g"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=oncelog.environment) as reader:
            try:
                assert reader.stderr is not None
                assert f"127.0.0.1:{other}" in reader.stderr.readline()
                assert "oncelog doctor" in reader.stderr.readline()
            finally:
                reader.kill()
