"""What the reader of a pipe has taken of what was written, and whether there still is one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.clients.cli.paced_output import PacedOutput


async def _nothing() -> None:
    pass


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(writer)


async def test_taken_bytes_of_a_pipe_are_those_its_reader_has_read(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = PacedOutput(writer)
    await output.write(b"abcdef", _nothing)
    assert (output.written, output.taken) == (6, 0)
    assert os.read(reader, 4) == b"abcd"
    assert (output.written, output.taken) == (6, 4)
    os.close(reader)


async def test_pipe_has_no_reader_when_that_is_closed(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = PacedOutput(writer)
    assert output.has_reader
    await output.write(b"abcdef", _nothing)
    os.close(reader)
    assert not output.has_reader
    with pytest.raises(BrokenPipeError):
        await output.write(b"g", _nothing)


async def test_finish_returns_when_the_reader_has_taken_all_and_meanwhile_calls_back(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = PacedOutput(writer)
    await output.write(b"abcdef", _nothing)
    calls = []

    async def read_at_last() -> None:
        calls.append(output.taken)
        os.read(reader, 6)

    await output.finish(read_at_last)
    assert calls == [0]
    assert output.taken == 6
    os.close(reader)


async def test_finish_returns_when_the_reader_has_gone(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = PacedOutput(writer)
    await output.write(b"abcdef", _nothing)

    async def leave() -> None:
        os.close(reader)

    await output.finish(leave)
    assert not output.has_reader


async def test_taken_bytes_of_a_file_are_all_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        output = PacedOutput(file.fileno())
        await output.write(b"abcdef", _nothing)
        assert (output.written, output.taken, output.has_reader) == (6, 6, True)
        await output.finish(_nothing)
