"""``python -m tests.simulation``: play histories of brokers and clusters in virtual time, or replay one."""

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.simulation.corpus import read_corpus
from tests.simulation.histories import KINDS, PLAIN, HistoryName, Played, mixture, play
from tests.simulation.readable_trace import ReadableTrace
from tests.simulation.runner import Totals, differing_digests, played
from tests.simulation.shrinking import shrink

_REPORT_SECONDS: Final = 10.0
_MOST_FAILURES_SHOWN: Final = 20
_HASH_SEEDS: Final = ("0", "1", "2")
_EXAMPLES: Final = """examples:
  python -m tests.simulation run --seeds 1000                 a thousand fresh histories on all cores
  python -m tests.simulation run --kinds writers --base 0     writers:0, writers:1 and so on
  python -m tests.simulation replay transactions:17           the trace of one history
  python -m tests.simulation replay writers:3 --all --to trace.txt
  python -m tests.simulation replay writers:3 --shrink        the fewest faults with which it still fails
  python -m tests.simulation corpus                           every history that ever failed
  python -m tests.simulation determinism --seeds 1000         equal traces under three hash seeds
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Play seeded histories of brokers, clients and faults in virtual time. Equal seeds give equal "
        "histories. Kinds: " + "; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items()) + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play many histories; exit code 1 if one fails")
    _add_choice(run, seeds=200)
    run.add_argument("--keep-going", action="store_true", help="play on after a failure, and list all failures")
    again = commands.add_parser("corpus", help="play every history that failed once; exit code 1 if one fails")
    again.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    determinism = commands.add_parser(
        "determinism", help="play histories under three hash seeds; exit code 1 if a trace differs"
    )
    _add_choice(determinism, seeds=100)
    replay = commands.add_parser("replay", help="play one history and print what happens")
    replay.add_argument(
        "names", type=_histories, metavar="HISTORY", help="KIND:SEED, or SEED for the history of each plain kind"
    )
    replay.add_argument("--to", type=Path, metavar="FILE", help="write the trace to a file")
    replay.add_argument("--lines", type=int, default=2000, help="print at most the last LINES lines (%(default)s)")
    replay.add_argument(
        "--shrink", action="store_true", help="find the fewest faults that still fail, and replay these"
    )
    replay.add_argument("--replays", type=int, default=200, help="most replays to shrink one (%(default)s)")
    replay.add_argument("--all", action="store_true", help="show Fetch, Metadata and the like, too")
    replay.add_argument("--log-level", default="WARNING", help="show log lines from this level on (%(default)s)")
    return parser


def _add_choice(parser: argparse.ArgumentParser, *, seeds: int) -> None:
    parser.add_argument(
        "--seeds", type=_seeds, default=seeds, help="number of histories, of all kinds together (%(default)s)"
    )
    parser.add_argument("--base", type=int, help="first seed of each kind; drawn by the system if not given")
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS), help="comma-separated kinds (all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")


def _seeds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"SEEDS={text} is not a number of histories: 1 or more")
    return int(text)


def _kinds(text: str) -> list[str]:
    unknown = set(text.split(",")) - set(KINDS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    return text.split(",")


def _histories(text: str) -> list[HistoryName]:
    kind, separator, seed = text.rpartition(":")
    if not seed.isdecimal() or (separator and kind not in KINDS):
        raise argparse.ArgumentTypeError(f"{text!r} is no KIND:SEED; kinds: {', '.join(KINDS)}")
    return [HistoryName(each, int(seed)) for each in ([kind] if separator else PLAIN)]


def _chosen(arguments: argparse.Namespace) -> Iterable[HistoryName]:
    base = random.SystemRandom().randrange(10**9) if arguments.base is None else arguments.base
    print(about_choice(arguments.kinds, arguments.seeds))
    print(about_seeds(arguments.kinds, base), flush=True)
    return islice(mixture({kind: KINDS[kind] for kind in arguments.kinds}, base), arguments.seeds)


def about_choice(kinds: Iterable[str], seeds: int) -> str:
    """Return how many histories of how many kinds a run plays, and which kinds it leaves out."""
    chosen = list(dict.fromkeys(kinds))
    histories, known = _count(seeds, "history", "histories"), _count(len(chosen), "kind", "kinds")
    if seeds >= len(chosen):
        return f"{histories} in all, of {known}"
    return (
        f"{histories} in all, of {seeds} of {known}: not of {', '.join(chosen[seeds:])} (SEEDS={len(chosen)} or more)"
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def about_seeds(kinds: Sequence[str], base: int) -> str:
    """Return which seeds a run plays, and how to play one of its histories or all of them again."""
    return (
        f"the histories of a kind have the seeds {base}, {base + 1} and so on; make simulate SEED={kinds[0]}:{base} "
        f"replays the first of {kinds[0]}, and BASE={base} plays the same histories again"
    )


def about_kinds(kinds: Iterable[str]) -> str:
    """Return a line for each kind of histories; one for all those with buggify."""
    chosen = list(kinds)
    lines = [f"  {kind}: {PLAIN[kind].about}" for kind in chosen if kind in PLAIN]
    swarms = [kind for kind in chosen if kind not in PLAIN]
    lines += [f"  with buggify: {', '.join(swarms)}"] if swarms else []
    return "\n".join(["kinds (KINDS=NAME,… takes some of them):", *lines])


def run(arguments: argparse.Namespace) -> bool:
    """Play many histories; return whether all held."""
    print(about_kinds(arguments.kinds))
    return play_all(_chosen(arguments), total=arguments.seeds, jobs=arguments.jobs, keep_going=arguments.keep_going)


def corpus(arguments: argparse.Namespace) -> bool:
    """Play every history that failed once; return whether all hold."""
    names = [entry.name for entry in read_corpus()]
    return play_all(names, total=len(names), jobs=arguments.jobs, keep_going=True)


def play_all(names: Iterable[HistoryName], *, total: int, jobs: int, keep_going: bool) -> bool:
    """Play histories and print what they came to, also after Ctrl-C; return whether all were played and held."""
    totals, started, is_whole = Totals(), time.perf_counter(), False
    try:
        _add_all(totals, played(names, jobs=jobs), total, started, keep_going=keep_going)
        is_whole = True
    except KeyboardInterrupt:
        print("Interrupted. What was played until then:")
    print(progress(totals, total, time.perf_counter() - started))
    _print_totals(totals)
    return is_whole and not totals.failed


def _add_all(totals: Totals, histories: Iterable[Played], total: int, started: float, *, keep_going: bool) -> None:
    """Add up histories as they end, and print failures and progress; stop at a failure unless ``keep_going``."""
    reported = started
    for one in histories:
        totals.add(one)
        if one.failure:
            _print_failure(one)
            if not keep_going:
                return
        if time.perf_counter() - reported >= _REPORT_SECONDS:
            reported = time.perf_counter()
            print(progress(totals, total, reported - started), flush=True)


def progress(totals: Totals, total: int, seconds: float) -> str:
    """Return how many of all histories are played, how fast, and how many failed."""
    count = totals.histories.total()
    rate, hours = 60 * count / max(seconds, 0.001), totals.virtual_seconds / 3600
    played_of = f"{count} of {_count(total, 'history', 'histories')}"
    return f"{played_of}, {rate:.0f} a minute, {hours:.2f} simulated hours, {len(totals.failed)} failed"


def _print_failure(one: Played) -> None:
    print(f"{one.failure}\n{one.name} FAILED; replay it with: make simulate SEED={one.name}", flush=True)


def _print_totals(totals: Totals) -> None:
    print("histories:", ", ".join(f"{kind} {count}" for kind, count in totals.histories.items()))
    for kind, count in totals.counts.most_common():
        print(f"{count:10}  {kind}")
    for one in totals.failed[:_MOST_FAILURES_SHOWN]:
        print(f"FAILED {one.name}: {one.raised_in}: {one.failure.strip().splitlines()[-1][:200]}")


def determinism(arguments: argparse.Namespace) -> bool:
    """Play the same histories under three hash seeds; return whether their traces are equal."""
    differing = differing_digests(_chosen(arguments), _HASH_SEEDS, jobs=arguments.jobs, progress=print)
    for name in differing:
        print(f"{name}: the trace depends on the hash seed, or on what ran before")
    print(f"{_count(arguments.seeds, 'history', 'histories')}, {len(_HASH_SEEDS)} hash seeds, {len(differing)} differ")
    return not differing


def replay(arguments: argparse.Namespace) -> bool:
    """Play one history and print its trace; return whether it held."""
    if len(arguments.names) > 1:
        print(about_replays(arguments.names), flush=True)
    failed: list[HistoryName] = []
    with ExitStack() as resources:
        out = sys.stdout if arguments.to is None else resources.enter_context(arguments.to.open("w"))
        for name in arguments.names:
            trace = ReadableTrace(most_lines=arguments.lines, everything=arguments.all)
            faults = None
            if arguments.shrink:
                holds, faults = _fewest_faults(name, arguments.replays)
                if holds:
                    continue
            with trace.with_log_lines(logging.getLevelName(arguments.log_level.upper())):
                one = play(name, listener=trace.add, faults=faults)
            print(*trace.lines(), sep="\n", file=out)
            print(f"{name}: {one.virtual_seconds:.1f} virtual seconds,", one.failure or "all held")
            failed += [name] if one.failure else []
    if len(arguments.names) > 1:
        print(outcome_of_replays(arguments.names, failed))
    return not failed


def about_replays(names: Sequence[HistoryName]) -> str:
    """Return what a seed without a kind replays."""
    return f"a history of each plain kind: {', '.join(map(str, names))}; SEED=KIND:{names[0].seed} plays one"


def outcome_of_replays(names: Sequence[HistoryName], failed: Sequence[HistoryName]) -> str:
    """Return how many histories were replayed, and which of them failed."""
    return f"{len(names)} histories, {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))}"


def _fewest_faults(name: HistoryName, most_replays: int) -> tuple[bool, list[Any] | None]:
    """Return whether a history holds, and else what is left of its faults; None if they cannot be left out."""
    faults: list[Any] | None = None
    logging.disable(logging.CRITICAL)
    try:
        if KINDS[name.kind].plan is None:
            first = play(name)
        else:
            first, faults = shrink(name, most_replays=most_replays, progress=partial(print, flush=True))
    finally:
        logging.disable(logging.NOTSET)
    if not first.failure:
        print(f"{name} holds: there is nothing to shrink. Without SHRINK=1 (--shrink) its trace is printed")
        return True, None
    if faults is None:
        print(f"{name} fails; histories of the kind {name.kind} cannot be shrunk: all of its faults are shown")
        return False, None
    print(f"{name} still fails with these {len(faults)}:", *faults, sep="\n  ", flush=True)
    return False, faults


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if everything held."""
    arguments = _parser().parse_args(argv)
    commands = {"run": run, "corpus": corpus, "determinism": determinism, "replay": replay}
    return 0 if commands[arguments.command](arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
