"""``oncelog audit verify FILE…``: whether an audit log is as its broker has written it.

Exit code 1 says that it is not: a line was changed, removed or put in, or a file of several is missing. What was
removed from the end shows only against a line that is known to have been written: brokers note the last one in their
own log.
"""

import re
from pathlib import Path
from typing import Final

import click

from oncelog.broker.security.audit_chain import EMPTY, MIN_KEY_BYTES, Head
from oncelog.broker.security.audit_verdict import Verdict, Verification, first_number

_NOT_AS_WRITTEN: Final = 1
_HEAD: Final = re.compile(r"(\d+):([0-9a-f]{64})")
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def command() -> None:
    """Verify the audit log of a broker."""


@command.command("verify")
@click.argument("files", type=_FILE, metavar="FILE...", nargs=-1, required=True)
@click.option("--key-file", type=_FILE, help="File with the key (oncelog.audit.key.file).")
@click.option("--expect", metavar="LINE:SEAL", help="A line that was written, from the broker's own log.")
@click.option("--after", metavar="LINE:SEAL", help="The last line before these files, if older ones are put away.")
def verify_command(files: tuple[Path, ...], key_file: Path | None, expect: str | None, after: str | None) -> None:
    """Find lines that were changed, removed or put in.

    Give all files of a log, in any order: its chain goes from one to the next.
    """
    expected = None if expect is None else _head_of("--expect", expect)
    before = EMPTY if after is None else _head_of("--after", after)
    verdict = _verify(files, Verification(_read_key(key_file), expected=expected, after=before))
    for problem in verdict.problems:
        click.echo(problem)
    if verdict.unlisted:
        click.echo(f"{verdict.unlisted} more")
    click.echo(f"{verdict.lines} lines, the last is {verdict.head.line}:{verdict.head.seal}")
    if verdict.problems:
        raise SystemExit(_NOT_AS_WRITTEN)


def _verify(files: tuple[Path, ...], verification: Verification) -> Verdict:
    for path in sorted(files, key=_first_number):
        with path.open("rb") as lines:
            verification.read(lines, path.name if len(files) > 1 else "")
    return verification.end()


def _first_number(path: Path) -> float:
    """Return by what files are put in order; those that have no line of an audit log first come last."""
    with path.open("rb") as lines:
        number = first_number(lines.readline())
    return float("inf") if number is None else number


def _read_key(key_file: Path | None) -> bytes | None:
    key = None if key_file is None else key_file.read_bytes().strip()
    if key is not None and len(key) < MIN_KEY_BYTES:
        raise click.BadParameter(f"{key_file} has {len(key)} bytes: a key has {MIN_KEY_BYTES} at least")
    return key


def _head_of(option: str, text: str) -> Head:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{option} {text}: expected LINE:SEAL, a number and 64 hexadecimal digits")
    return Head(int(match[1]), match[2])
