"""Shrink a failing history: find few of its faults with which it still fails, by delta debugging.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): leave out one part after the other,
and halve the parts when none of them can be left out. A smaller plan counts only if it fails with the same exception in
the same function.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.simulation.histories import KINDS, HistoryName, Played, play

T = TypeVar("T")


def shrunk(
    items: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most_tries: int, progress: Callable[[str], None]
) -> list[T]:
    """Return few of the items with which it still fails, in their order; ``fails`` is called at most so many times."""
    left, parts, tries = list(items), 2, 0
    while left and tries < most_tries:
        size = -(-len(left) // parts)
        for begin in range(0, len(left), size):
            if tries == most_tries:
                break
            tries += 1
            fewer = left[:begin] + left[begin + size :]
            if fails(fewer):
                left, parts = fewer, max(parts - 1, 2)
                progress(f"{tries} of at most {most_tries} replays: {len(left)} of {len(items)} still fail")
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left


def shrink(name: HistoryName, *, most_replays: int, progress: Callable[[str], None]) -> tuple[Played, list[Any]]:
    """Play a history; return its outcome, and few of its faults with which it still fails: none if it does not fail."""
    plan = KINDS[name.kind].plan
    if plan is None:
        raise ValueError(f"histories of the kind {name.kind} have no plan to shrink")
    first, faults = play(name), plan(name.seed)
    if not first.failure:
        return first, []
    progress(f"{name} fails with {len(faults)} faults or steps: {first.raised_in}")
    return first, shrunk(
        faults,
        lambda fewer: play(name, faults=fewer).raised_in == first.raised_in,
        most_tries=most_replays,
        progress=progress,
    )
