"""What ``python -m tests.simulation`` says of the histories that it plays."""

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.simulation.__main__ import (
    about_choice,
    about_kinds,
    about_replays,
    about_seeds,
    main,
    outcome_of_replays,
    play_all,
    progress,
)
from tests.simulation.histories import KINDS, PLAIN, HistoryName, mixture
from tests.simulation.runner import Totals


def test_kinds_of_a_run_are_listed_with_their_meaning() -> None:
    lines = about_kinds(KINDS).splitlines()
    assert f"  groups: {PLAIN['groups'].about}" in lines
    assert len(lines) == 1 + len(PLAIN) + 1
    assert about_kinds(["topics"]).splitlines()[1:] == [f"  topics: {PLAIN['topics'].about}"]


def test_replays_of_a_seed_without_a_kind_are_all_named() -> None:
    names = [HistoryName(kind, 5) for kind in PLAIN]
    said = about_replays(names)
    assert all(str(name) in said for name in names)
    assert said.endswith("SEED=KIND:5 plays one")
    assert outcome_of_replays(names, []) == f"{len(PLAIN)} histories, 0 failed"
    assert outcome_of_replays(names, names[2:4]) == f"{len(PLAIN)} histories, 2 failed: writers:5, transactions:5"


def test_run_begins_with_a_history_of_each_kind() -> None:
    names = list(islice(mixture(KINDS, 7), len(KINDS)))
    assert names == [HistoryName(kind, 7) for kind in KINDS]


def test_run_of_fewer_histories_than_kinds_names_the_kinds_that_are_not_played() -> None:
    assert about_choice(["groups", "topics"], 20) == "20 histories in all, of 2 kinds"
    left_out = "1 history in all, of 1 of 3 kinds: not of topics, writers (SEEDS=3 or more)"
    assert about_choice(["groups", "topics", "writers"], 1) == left_out


def test_shrinking_a_history_that_holds_says_so_and_prints_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """One of a kind that cannot be shrunk, too."""
    assert KINDS["one-broker"].plan is None
    assert main(["replay", "one-broker:1", "--shrink"]) == 0
    assert capsys.readouterr().out == (
        "one-broker:1 holds: there is nothing to shrink. Without SHRINK=1 (--shrink) its trace is printed\n"
    )


@pytest.mark.parametrize("seeds", ["0", "-1", "many"])
def test_run_of_no_history_is_refused_with_the_name_of_the_variable(
    seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", f"--seeds={seeds}"])
    assert f"SEEDS={seeds} is not a number of histories: 1 or more" in capsys.readouterr().err


def test_progress_has_the_number_of_all_histories() -> None:
    totals = Totals(virtual_seconds=7200.0)
    totals.histories["topics"] = 17
    assert progress(totals, 20, 60.0) == "17 of 20 histories, 17 a minute, 2.00 simulated hours, 0 failed"


def test_run_says_how_to_replay_what_it_plays() -> None:
    said = about_seeds(["groups", "topics"], 7)
    assert "make simulate SEED=groups:7 replays the first of groups, and BASE=7 plays the same" in said


def test_history_that_holds_is_not_shrunk_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "writers:17", "--shrink"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "writers:17 holds: there is nothing to shrink. Without SHRINK=1 (--shrink) its trace is printed"
    ]


def test_interrupted_run_prints_what_it_has_played(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> Iterator[HistoryName]:
        yield from (HistoryName("one-broker", seed) for seed in range(6))
        raise KeyboardInterrupt

    assert not play_all(interrupted(), total=8, jobs=1, keep_going=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Interrupted"), lines
    assert " of 8 histories, " in lines[1], lines
    assert lines[2].startswith("histories: one-broker "), lines
