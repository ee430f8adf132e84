"""``oncelog consume --group`` into a pipe: what its reader did not take is not committed, and so not lost."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.command import SECONDS, Oncelog
from tests.processes import OncelogProcess

COUNT = 200
LINES = [f"line {number}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as process:
        command = Oncelog(process.address)
        command("topic create orders --partitions 1")
        command("produce orders", "".join(f"{line}\n" for line in LINES))
        yield command


@contextmanager
def member(oncelog: Oncelog, words: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "oncelog", "consume", "orders", "--format", "value", *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=oncelog.environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_lines(process: "subprocess.Popen[bytes]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().decode().strip() for _ in range(count)]


@pytest.mark.parametrize("how", ["", "--until-end", f"--number {COUNT}"])
def test_reader_that_goes_after_five_lines_leaves_all_to_the_next_run(oncelog: Oncelog, how: str) -> None:
    group = f"head{how.strip('-').replace(' ', '')}"
    with member(oncelog, f"--group {group} {how}") as process:
        assert read_lines(process, 5) == LINES[:5]
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert "the next run continues at orders-0 at offset 0" in said
    assert "-n NUMBER" in said
    assert oncelog(f"consume orders --group {group} -e --format value").split("\n")[:COUNT] == LINES


def test_reader_that_takes_more_than_it_shows_and_goes_leaves_all_to_the_next_run(oncelog: Oncelog) -> None:
    """As ``head`` does, which reads a block, prints a few lines of it and ends."""
    with member(oncelog, "--group block") as process:
        assert process.stdout is not None
        assert LINES[-1].encode() in process.stdout.read(sum(len(line) + 1 for line in LINES))
        process.stdout.close()
        assert process.wait(SECONDS) == 1
    assert oncelog("consume orders --group block -e --format value").splitlines() == LINES


def test_reader_that_takes_everything_has_it_committed(oncelog: Oncelog) -> None:
    with member(oncelog, "--group all --until-end") as process:
        said = process.communicate(timeout=SECONDS)[0].decode()
    assert said.splitlines() == LINES
    assert oncelog.json("group describe all")["partitions"][0]["committed"] == COUNT


def test_member_that_is_stopped_commits_nothing_that_its_reader_left_in_the_pipe(oncelog: Oncelog) -> None:
    with member(oncelog, "--group stopped") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"l"  # One byte: the kernel gives a pipe's reader what it asks for.
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert oncelog("consume orders --group stopped -e --format value").splitlines() == LINES


def test_option_from_without_effect_warns_and_names_the_command_that_moves_the_group(oncelog: Oncelog) -> None:
    oncelog("consume orders --group told -n 10")
    done = oncelog.run("consume orders --group told --from beginning -n 1 --format value")
    assert done.stdout.strip() == LINES[10]
    assert "--from has no effect on orders-0" in done.stderr
    assert "oncelog group seek told --to POSITION" in done.stderr
    fresh = oncelog.run("consume orders --group fresh --from 5 -n 1 --format value")
    assert fresh.stdout.strip() == LINES[5]
    assert "no effect" not in fresh.stderr
