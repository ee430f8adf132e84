"""Equal seeds give equal histories; ``make simulate-determinism SEEDS=1000`` compares more of them, of every kind."""

import os

import pytest

from tests.simulation.histories import HistoryName, play
from tests.simulation.journal import Entry
from tests.simulation.readable_trace import ReadableTrace
from tests.simulation.runner import differing_digests, played

CHEAP_KINDS = ("one-broker", "replicas", "swarm-one-broker", "swarm-replicas")
ONE_OF_A_CLUSTER = HistoryName("swarm-transactions", 4)


def test_histories_under_three_hash_seeds_have_equal_digests() -> None:
    """No decision follows the order of a set, an id(), or what ran before in the process."""
    names = [*(HistoryName(kind, seed) for kind in CHEAP_KINDS for seed in (4, 5)), ONE_OF_A_CLUSTER]
    progress: list[str] = []
    assert not differing_digests(names, ("0", "1", "2"), jobs=1, progress=progress.append)
    assert len(progress) == 3


def test_runner_restores_the_hash_seed_of_its_own_process() -> None:
    before = os.environ.get("PYTHONHASHSEED")
    (one,) = played([HistoryName("replicas", 1)], jobs=1, hash_seed="7")
    assert not one.failure
    assert os.environ.get("PYTHONHASHSEED") == before


@pytest.mark.parametrize("kind", [*CHEAP_KINDS, "transactions"])
def test_histories_of_different_seeds_have_different_digests(kind: str) -> None:
    first, second = (play(HistoryName(kind, seed), digests=True).digest for seed in (1, 2))
    assert first != second


def test_listener_changes_nothing_of_a_history() -> None:
    name = HistoryName("one-broker", 4)
    entries: list[Entry] = []
    heard, unheard = play(name, listener=entries.append), play(name)
    assert heard.virtual_seconds == unheard.virtual_seconds
    assert {kind: count for kind, count in heard.counts.items() if kind != "request"} == dict(unheard.counts)
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


def test_readable_trace_keeps_the_last_lines_and_says_how_many_it_left_out() -> None:
    trace = ReadableTrace(most_lines=2)
    for number in range(5):
        trace.add(Entry(float(number), "broker 1", "kill", f"number {number}"))
    head, *rest = trace.lines()
    assert head == "(3 earlier lines are left out)"
    assert rest == [f"{number:11.6f}  broker 1              kill number {number}" for number in (3, 4)]
