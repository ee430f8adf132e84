"""``oncelog verify-history``: files in, texts and exit codes out."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.clients.cli.commands import commands

HEADER = '{"format": "oncelog-history", "version": 1}'
WRITE = '{"process": "w", "op": "txn", "outcome": "ok", "start": 0, "end": 5, "sends": [["a-0", 0, "x"]]}'
ABORT = '{"process": "w", "op": "txn", "outcome": "fail", "start": 0, "end": 5, "sends": [["a-0", null, "x"]]}'
READ = '{"process": 7, "op": "poll", "outcome": "ok", "start": 6, "end": 9, "reads": [["a-0", 0, "x"]]}'
FINAL = '{"process": "f", "op": "final", "outcome": "ok", "start": 10, "end": 11, "partitions": ["a-0"]}'


def verify(path: Path | str, *options: str, stdin: str = "") -> Result:
    return CliRunner().invoke(commands, ["verify-history", str(path), *options], input=stdin)


def written(directory: Path, *lines: str, name: str = "h.jsonl") -> Path:
    path = directory / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_good_history_exits_with_0(tmp_path: Path) -> None:
    result = verify(written(tmp_path, HEADER, WRITE, READ))
    assert result.exit_code == 0
    assert "2 operations (2 ok, 0 fail, 0 info), 1 write, 1 read" in result.output
    assert result.output.endswith("The history is good.\n")


def test_bad_history_exits_with_1_and_shows_the_operations_that_prove_it(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, ABORT, READ)
    result = verify(path)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "G1a: a value was read whose write definitely failed; 1 time"
    assert lines[1] == "  a-0 offset 0: 'x' was read, and its write failed"
    assert lines[2] == f"    w txn fail, 0.000000 s to 0.000000 s; wrote a-0 'x'; ({path}, line 2)"
    assert lines[3] == f"    7 poll ok, 0.000000 s to 0.000000 s; read a-0 'x' at 0; ({path}, line 3)"
    assert lines[-1] == "The history is BAD: G1a"


def test_json_has_the_verdict_and_the_anomalies(tmp_path: Path) -> None:
    result = verify(written(tmp_path, HEADER, WRITE, READ, FINAL), "--format", "json")
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert found["good"] is False
    assert found["operations"] == {"ok": 3, "fail": 0, "info": 0}
    assert [(each["anomaly"], each["allowed"], each["count"]) for each in found["anomalies"]] == [
        ("vanished", False, 1)
    ]
    assert len(found["anomalies"][0]["examples"][0]["operations"]) == 3


def test_allowed_anomaly_is_shown_and_exits_with_0(tmp_path: Path) -> None:
    result = verify(written(tmp_path, HEADER, ABORT, READ), "--allow", "G1a")
    assert result.exit_code == 0
    assert "G1a (allowed)" in result.output


def test_forbidden_anomaly_exits_with_1(tmp_path: Path) -> None:
    sends = '"sends": [["a-0", 0, "x"], ["a-0", 2, "z"]]'
    first = f'{{"process": "w", "op": "txn", "outcome": "ok", "start": 0, "end": 5, {sends}}}'
    second = '{"process": "v", "op": "send", "outcome": "ok", "start": 0, "end": 5, "sends": [["a-0", 1, "y"]]}'
    path = written(tmp_path, HEADER, first, second, READ)
    assert verify(path).exit_code == 0
    assert verify(path, "--forbid", "int-send-skip").exit_code == 1


def test_history_without_reads_is_not_called_good(tmp_path: Path) -> None:
    result = verify(written(tmp_path, HEADER, WRITE))
    assert result.exit_code == 2
    assert "Nothing was read" in result.output
    assert "good" not in result.output


def test_limit_bounds_the_anomalies_of_a_kind_that_are_shown(tmp_path: Path) -> None:
    reads = [READ.replace("a-0", f"a-{number}") for number in range(4)]
    result = verify(written(tmp_path, HEADER, *reads), "--limit", "1")
    assert "unknown-value: a value was read that no operation wrote; 4 times" in result.output
    assert "  and 3 more" in result.output


def test_several_files_compressed_or_not_make_one_history(tmp_path: Path) -> None:
    writer = tmp_path / "w.jsonl.gz"
    writer.write_bytes(gzip.compress(f"{HEADER}\n{WRITE}\n".encode()))
    assert verify(writer, str(written(tmp_path, HEADER, READ))).exit_code == 0
    assert verify(written(tmp_path, HEADER, READ)).exit_code == 1


def test_file_that_is_named_twice_exits_with_2(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, WRITE, READ)
    result = verify(path, str(tmp_path / "." / Path(path).name))
    assert result.exit_code == 2
    assert "is named twice: each operation counts once" in result.output


def test_history_is_read_from_standard_input() -> None:
    assert verify("-", stdin=f"{HEADER}\n{WRITE}\n{READ}\n").exit_code == 0
    result = verify("-", stdin="{}\n")
    assert result.exit_code == 2
    assert result.output.startswith("Error: standard input, line 1: this is no header of a history")


def test_file_that_is_missing_or_damaged_exits_with_2(tmp_path: Path) -> None:
    result = verify(tmp_path / "none.jsonl")
    assert (result.exit_code, result.output.splitlines()[0]) == (
        2,
        f"Error: {tmp_path}/none.jsonl: No such file or directory",
    )
    cut = tmp_path / "h.jsonl.gz"
    cut.write_bytes(gzip.compress(f"{HEADER}\n{WRITE}\n".encode())[:-12])
    assert verify(cut).exit_code == 2
    plain = written(tmp_path, HEADER, name="plain.gz")
    assert verify(plain).exit_code == 2


def test_malformed_line_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, WRITE, READ.replace("poll", "pull"))
    result = verify(path)
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        f"Error: {path}, line 3: op is 'pull'",
        "  Use one of send, poll, txn, assign, subscribe, final.",
    ]


@pytest.mark.parametrize("option", [["--allow", "G9"], ["--limit", "0"], ["--format", "table"]], ids=" ".join)
def test_wrong_option_exits_with_2(tmp_path: Path, option: list[str]) -> None:
    assert verify(written(tmp_path, HEADER), *option).exit_code == 2
