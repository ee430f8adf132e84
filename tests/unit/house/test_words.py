"""Words that hide what is meant, and names of tests."""

import pytest

from tests.house.naming import is_not_subject_first
from tests.house.words import RIDDLES, riddle_counts


def test_riddle_counts_parts_of_names_and_line_breaks_are_seen() -> None:
    counts = riddle_counts(
        ["why_disobey(LeaderTerm, is_told)", "Nobody is told; what is waited\nfor", "lifetime, goLife"]
    )
    found = {name: count for name, count in counts.items() if count}
    assert found == {
        "disobey": 1,
        "term": 1,
        "told": 2,
        "nobody, whoever, somebody": 1,
        "waited for": 1,
        "life": 1,
    }


def test_riddle_counts_plain_text_returns_zero_for_each() -> None:
    assert riddle_counts(["Return the response to the request."]) == dict.fromkeys(RIDDLES, 0)


@pytest.mark.parametrize("name", ["test_nobody_listens", "test_a_broker_that_is_gone_is_noticed", "test_produce"])
def test_is_not_subject_first_name_without_subject_or_result_is_true(name: str) -> None:
    assert is_not_subject_first(name)


def test_is_not_subject_first_name_of_subject_condition_and_result_is_false() -> None:
    assert not is_not_subject_first("test_connect_to_closed_port_raises_connection_refused")
