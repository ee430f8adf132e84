"""An audit log in several files: the chain goes from one to the next, and a file that is missing is named."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.broker.security.audit_chain import PREVIOUS_SEAL, AuditChain, Head
from oncelog.broker.security.audit_command import command
from oncelog.broker.security.audit_verdict import Verdict, Verification

KEY = b"0123456789abcdef"
NAMES = ("a.0000000001", "a.0000000011", "a.0000000021", "a")


def written(key: bytes | None = KEY) -> tuple[dict[str, list[bytes]], dict[str, Head]]:
    """Four files of ten lines each, with the last line of each."""
    chain, files, heads = AuditChain(key), dict[str, list[bytes]](), dict[str, Head]()
    for name in NAMES:
        first = {"event": "start"} if not files else {"event": "continued", PREVIOUS_SEAL: chain.head.seal}
        files[name] = [chain.add(first), *(chain.add({"event": "change"}) for _ in range(9))]
        heads[name] = chain.head
    return files, heads


def judged(files: dict[str, list[bytes]], *, key: bytes | None = KEY, after: Head | None = None) -> Verdict:
    verification = Verification(key) if after is None else Verification(key, after=after)
    for name, lines in files.items():
        verification.read(lines, name)
    return verification.end()


def test_chain_goes_on_from_file_to_file() -> None:
    files, heads = written()
    verdict = judged(files)
    assert (verdict.problems, verdict.lines, verdict.head) == ([], 40, heads["a"])


@pytest.mark.parametrize(
    ("missing", "problems"),
    [
        ([0], ["lines 1 to 10 are missing: the file or files before a.0000000011"]),
        ([1], ["lines 11 to 20 are missing: the file or files between a.0000000001 and a.0000000021"]),
        ([2], ["lines 21 to 30 are missing: the file or files between a.0000000011 and a"]),
        ([1, 2], ["lines 11 to 30 are missing: the file or files between a.0000000001 and a"]),
        ([3], []),
    ],
)
def test_file_that_is_missing_is_named_and_all_others_are_judged(missing: list[int], problems: list[str]) -> None:
    files, _ = written()
    for place in missing:
        del files[NAMES[place]]
    assert judged(files).problems == problems
    files["a" if "a" in files else "a.0000000021"][5] = b'{"line":36,"seal":"%s"}\n' % (b"0" * 64)
    assert len(judged(files).problems) > len(problems)


def test_files_are_put_in_place_of_older_ones_that_are_put_away_by_their_last_line() -> None:
    files, heads = written()
    del files["a.0000000001"]
    assert not judged(files, after=heads["a.0000000001"]).problems
    other = Head(10, "0" * 64)
    assert judged(files, after=other).problems == [
        "a.0000000011: line 1 is not what was written, or another was before it, or the key is not the broker's"
    ]


def test_file_that_was_written_anew_is_found_by_the_next_one() -> None:
    files, _ = written(None)
    chain = AuditChain(None, Head(10, json.loads(files["a.0000000011"][0])[PREVIOUS_SEAL]))
    files["a.0000000011"] = [chain.add({"event": "forged"}) for _ in range(10)]
    (problem,) = judged(files, key=None).problems
    assert problem.startswith("a.0000000021: line 1 is not what was written")


@pytest.mark.parametrize("first", [b'{"event":"continued"}', b'{"event":"continued","previous_seal":7}'])
def test_first_line_without_the_former_seal_is_a_problem_after_a_gap(first: bytes) -> None:
    chain = AuditChain(None, Head(10, "0" * 64))
    assert len(judged({"a": [chain.add(json.loads(first))]}, key=None).problems) == 2


@pytest.mark.parametrize(("key", "why"), [(None, "no key is given"), (b"another" * 8, "this is another key")])
def test_wrong_key_is_one_problem(key: bytes | None, why: str) -> None:
    files, _ = written()
    (problem,) = judged(files, key=key).problems
    assert why in problem


def run(*words: str | Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(command, ["verify", *map(str, words)])
    return result.exit_code, result.output.splitlines()


def test_command_puts_files_in_order_and_names_the_gap(tmp_path: Path) -> None:
    files, heads = written(None)
    for name, lines in files.items():
        (tmp_path / name).write_bytes(b"".join(lines))
    (tmp_path / "a.lock").touch()
    everything = sorted(tmp_path.iterdir())
    last = f"40 lines, the last is 40:{heads['a'].seal}"
    assert run(*everything) == (0, [last])
    assert run(*reversed(everything), "--expect", f"25:{heads['a.0000000021'].seal}")[0] == 1
    (tmp_path / "a.0000000011").unlink()
    code, printed = run(*sorted(tmp_path.iterdir()))
    gap = "lines 11 to 20 are missing: the file or files between a.0000000001 and a.0000000021"
    assert (code, printed[0]) == (1, gap)


def test_command_begins_after_a_line(tmp_path: Path) -> None:
    files, heads = written(None)
    (tmp_path / "a").write_bytes(b"".join(files["a"]))
    code, printed = run(tmp_path / "a")
    assert (code, printed[0]) == (1, "lines 1 to 30 are missing: the file or files before this one")
    before = heads["a.0000000021"]
    assert run(tmp_path / "a", "--after", f"30:{before.seal}")[0] == 0
    assert "expected LINE:SEAL" in "".join(run(tmp_path / "a", "--after", "30")[1])
