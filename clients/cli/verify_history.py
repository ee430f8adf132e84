"""``oncelog verify-history FILE…``: whether the broker of a recorded history kept its promises.

It talks to no cluster. What a history is, and what is judged, is ``oncelog.clients.history``; here are files and texts.
"""

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from oncelog.clients.cli.output import format_json
from oncelog.clients.cli.session import complain, example
from oncelog.clients.history.anomaly import MEANINGS, Anomaly, AnomalyKind
from oncelog.clients.history.file_format import MalformedHistory, read_files
from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Operation, Outcome, Read, Send
from oncelog.clients.history.verdict import Findings, Rules, Verdict, judge
from oncelog.protocol.printable import one_line

BAD: Final = 1
UNREADABLE: Final = 2
_STDIN: Final = "-"
_NANOSECONDS: Final = 1_000_000_000
_LONGEST_TEXT: Final = 400
"""Characters of a line about an operation."""
_SHOWN_RECORDS: Final = 6
"""Records of an operation in its line."""


class _Kind(click.Choice[str]):
    """The name of an anomaly."""

    def __init__(self) -> None:
        super().__init__([kind.value for kind in AnomalyKind])


@click.command(
    "verify-history",
    epilog=example(
        "oncelog verify-history history.jsonl",
        "oncelog verify-history client-*.jsonl.gz --format json",
        "oncelog verify-history - --allow G1c-realtime < history.jsonl",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--allow", multiple=True, type=_Kind(), help="Let this anomaly pass; repeatable.")
@click.option("--forbid", multiple=True, type=_Kind(), help="Fail on this anomaly, which Kafka allows; repeatable.")
@click.option(
    "--infer-ww",
    is_flag=True,
    help="Take the order of the log as a dependency between writers; allows cycles, since transactions interleave.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=100),
    default=5,
    show_default=True,
    metavar="COUNT",
    help="Anomalies of each kind to print.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
def verify_history(
    files: tuple[str, ...], allow: tuple[str, ...], forbid: tuple[str, ...], infer_ww: bool, limit: int, output: str
) -> None:
    """Judge a recorded history of any broker's clients: find what was lost, doubled, torn or read too early.

    The files are JSON Lines, - is standard input, and .gz is decompressed; several files make one history. Prints each
    anomaly with the operations that prove it. The exit code is 0 if the history is good, 1 if not, and 2 if a file is
    no history or nothing was read in it. The lag of a reader is how long a record was known to exist, as it was
    acknowledged or read before, when an operation began that did not read it yet.
    """
    twice = _named_twice(files)
    if twice is not None:
        complain(f"Error: {twice} is named twice: each operation counts once in a history")
        raise click.exceptions.Exit(UNREADABLE)
    rules = Rules.of(infer_ww=infer_ww, allow=map(AnomalyKind, allow), forbid=map(AnomalyKind, forbid))
    try:
        history = History(read_files((_shown(name), _lines(name)) for name in files))
    except MalformedHistory as error:
        complain(f"Error: {error}", error.remedy)
        raise click.exceptions.Exit(UNREADABLE) from None
    verdict = judge(history, rules)
    click.echo(format_json(_as_json(verdict, limit)) if output == "json" else "\n".join(_as_text(verdict, limit)))
    if not verdict.is_good:
        raise click.exceptions.Exit(BAD)
    if not verdict.reads:
        raise click.exceptions.Exit(UNREADABLE)


def _named_twice(files: Iterable[str]) -> str | None:
    """Return the first file that is the same as one before it; None if all are different."""
    seen: set[Path | str] = set()
    for name in files:
        file = name if name == _STDIN else Path(name).resolve()
        if file in seen:
            return name
        seen.add(file)
    return None


def _shown(name: str) -> str:
    return "standard input" if name == _STDIN else name


def _lines(name: str) -> Iterator[bytes]:
    """Yield the lines of a file. Raises ``MalformedHistory`` for a file that cannot be read."""
    shown = _shown(name)
    try:
        with _open(name) as lines:
            yield from lines
    except OSError as error:
        raise MalformedHistory(shown, error.strerror or str(error), "Name a file that this user can read.") from None
    except (EOFError, zlib.error):
        raise MalformedHistory(
            shown, "the compressed file is cut off or damaged", "Decompress it with gzip to see how far it goes."
        ) from None


def _open(name: str) -> "AbstractContextManager[BinaryIO | gzip.GzipFile]":
    if name == _STDIN:
        return nullcontext(sys.stdin.buffer)
    return gzip.open(name, "rb") if name.endswith(".gz") else Path(os.fspath(name)).open("rb")


def _as_text(verdict: Verdict, limit: int) -> Iterable[str]:
    for kind, found in verdict.findings.items():
        allowed = " (allowed)" if kind in verdict.rules.allowed else ""
        yield f"{kind.value}{allowed}: {MEANINGS[kind]}; {_count(found.count, 'time')}"
        for anomaly in found.kept[:limit]:
            yield f"  {_short(anomaly.text)}"
            yield from (f"    {_short(_operation_text(operation))}" for operation in anomaly.operations)
        if found.count > limit:
            yield f"  and {found.count - min(limit, len(found.kept))} more"
        yield ""
    yield _counts(verdict)
    if not verdict.has_final_read:
        yield "There is no final read: what is missing, torn or skipped at the end of the log is not judged."
    if not verdict.reads:
        yield "Nothing was read: this history can prove nothing. Record the reads of a consumer, too."
    forbidden = ", ".join(kind.value for kind in verdict.forbidden)
    if verdict.reads or not verdict.is_good:
        yield "The history is good." if verdict.is_good else f"The history is BAD: {forbidden}"


def _counts(verdict: Verdict) -> str:
    outcomes = ", ".join(f"{verdict.operations[outcome]} {outcome.value}" for outcome in Outcome)
    total = sum(verdict.operations.values())
    lag = verdict.worst_realtime_lag / _NANOSECONDS
    return (
        f"{_count(total, 'operation')} ({outcomes}), {_count(verdict.sends, 'write')}, "
        f"{_count(verdict.reads, 'read')}; worst lag of a reader {lag:.3f} s"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def _operation_text(operation: Operation) -> str:
    """Return who did what and when."""
    end = "?" if operation.end is None else _seconds(operation.end)
    who = f"{operation.process} {operation.kind.value} {operation.outcome.value}, {_seconds(operation.start)} to {end}"
    wrote, read = _records_text(operation.sends), _records_text(operation.reads)
    groups = [f"group {group} at {_places_text(places)}" for group, places in operation.positions.items()]
    parts = [
        who,
        f"wrote {wrote}" if wrote else "",
        f"read {read}" if read else "",
        *groups,
        operation.error,
        f"({operation.origin})" if operation.origin else "",
    ]
    return "; ".join(part for part in parts if part)


def _records_text(records: Sequence[Send] | Sequence[Read]) -> str:
    texts = [_record_text(record) for record in records[:_SHOWN_RECORDS]]
    rest = len(records) - len(texts)
    return ", ".join(texts) + (f" and {rest} more" if rest else "")


def _record_text(record: Send | Read) -> str:
    place = "" if record.offset is None else f" at {record.offset}"
    return f"{record.partition} {record.value!r}{place}"


def _places_text(places: Mapping[str, int]) -> str:
    return ", ".join(f"{partition} {offset}" for partition, offset in places.items())


def _seconds(time_ns: int) -> str:
    return f"{time_ns / _NANOSECONDS:.6f} s"


def _as_json(verdict: Verdict, limit: int) -> dict[str, Any]:
    return {
        "good": verdict.is_good,
        "operations": {outcome.value: count for outcome, count in verdict.operations.items()},
        "writes": verdict.sends,
        "reads": verdict.reads,
        "has_final_read": verdict.has_final_read,
        "worst_lag_ns": verdict.worst_realtime_lag,
        "anomalies": [
            _findings_as_json(kind, found, kind in verdict.rules.allowed, limit)
            for kind, found in verdict.findings.items()
        ],
    }


def _findings_as_json(kind: AnomalyKind, found: Findings, is_allowed: bool, limit: int) -> dict[str, Any]:
    return {
        "anomaly": kind.value,
        "allowed": is_allowed,
        "meaning": MEANINGS[kind],
        "count": found.count,
        "examples": [_anomaly_as_json(anomaly) for anomaly in found.kept[:limit]],
    }


def _anomaly_as_json(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "text": anomaly.text,
        "operations": [
            {"origin": each.origin, "text": _operation_text(each)} if each.origin else {"text": _operation_text(each)}
            for each in anomaly.operations
        ],
    }
